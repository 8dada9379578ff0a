//! Storage of the batcher: requests in a slab, linked into lists without allocation.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

/// "No slot": the end of a list, or not a member.
pub(super) const NONE: u32 = u32::MAX;

/// Priorities that a group has room for from the start and after it empties; room for more is
/// given back to the allocator.
const CLASSES_KEPT: usize = 16;

/// A slot number as an index.
pub(super) const fn at(slot: u32) -> usize {
    slot as usize
}

#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

/// First and last member of a doubly linked list whose links live in [`Links`].
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List {
        head: NONE,
        tail: NONE,
    };

    pub(super) fn is_empty(self) -> bool {
        self.head == NONE
    }
}

/// Links by slot; a slot is in at most one list of one `Links`.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Links {
    pub(super) fn push_back(&mut self, list: &mut List, slot: u32) {
        if self.0.len() <= at(slot) {
            self.0.resize(
                at(slot) + 1,
                Link {
                    prev: NONE,
                    next: NONE,
                },
            );
        }
        self.0[at(slot)] = Link {
            prev: list.tail,
            next: NONE,
        };
        if list.tail == NONE {
            list.head = slot;
        } else {
            self.0[at(list.tail)].next = slot;
        }
        list.tail = slot;
    }

    pub(super) fn remove(&mut self, list: &mut List, slot: u32) {
        let Link { prev, next } = self.0[at(slot)];
        if prev == NONE {
            list.head = next;
        } else {
            self.0[at(prev)].next = next;
        }
        if next == NONE {
            list.tail = prev;
        } else {
            self.0[at(next)].prev = prev;
        }
    }

    /// The members of `list` from head to tail.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = u32> {
        let member = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(member(list.head), move |slot| {
            member(self.0[at(*slot)].next)
        })
    }
}

/// Facts of a queued request other than the caller's item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// Arrival number; never used twice.
    pub(super) seq: u64,
    pub(super) group: u32,
    pub(super) priority: u8,
    pub(super) rows: u32,
    pub(super) batchable: bool,
    /// Its queue delay is over: its group waits no longer.
    pub(super) due: bool,
    /// Its deadline passed while it was queued; it belongs to no group any more.
    pub(super) expired: bool,
    pub(super) arrived: Instant,
    pub(super) deadline: Option<Instant>,
}

#[derive(Debug)]
struct Entry<T> {
    facts: Facts,
    /// Present while the slot is in use.
    item: Option<T>,
}

/// The requests, by slot.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Stores an item. Fails, giving it back, only when all 2³² − 1 slots are in use.
    pub(super) fn insert(&mut self, facts: Facts, item: T) -> Result<u32, T> {
        if let Some(slot) = self.free.pop() {
            self.entries[at(slot)] = Entry {
                facts,
                item: Some(item),
            };
            return Ok(slot);
        }
        match u32::try_from(self.entries.len()) {
            Ok(slot) if slot != NONE => {
                self.entries.push(Entry {
                    facts,
                    item: Some(item),
                });
                self.free.reserve(self.entries.len());
                Ok(slot)
            }
            _ => Err(item),
        }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let item = self.entries[at(slot)].item.take();
        if item.is_some() {
            self.free.push(slot);
        }
        item
    }

    pub(super) fn facts(&self, slot: u32) -> &Facts {
        &self.entries[at(slot)].facts
    }

    pub(super) fn facts_mut(&mut self, slot: u32) -> &mut Facts {
        &mut self.entries[at(slot)].facts
    }

    /// Whether `slot` still holds the request with arrival number `seq`.
    pub(super) fn holds(&self, slot: u32, seq: u64) -> bool {
        self.entries
            .get(at(slot))
            .is_some_and(|e| e.item.is_some() && e.facts.seq == seq)
    }
}

/// The waiting requests of one key.
#[derive(Debug)]
pub(super) struct Group<K> {
    /// Present while the group is in use.
    key: Option<K>,
    /// One FIFO list for each priority present, most urgent first.
    classes: Vec<(u8, List)>,
    /// Rows of the requests that may be joined.
    pub(super) rows: u64,
    /// Requests that must run alone.
    pub(super) solo: u32,
    /// Requests whose queue delay is over.
    pub(super) due: u32,
}

impl<K> Group<K> {
    /// The most urgent, oldest request.
    pub(super) fn head(&self) -> Option<u32> {
        self.classes.first().map(|(_, list)| list.head)
    }

    /// The requests, most urgent first, oldest first within a priority.
    pub(super) fn iter<'a>(&'a self, links: &'a Links) -> impl Iterator<Item = u32> + 'a {
        self.classes.iter().flat_map(|(_, list)| links.iter(*list))
    }

    pub(super) fn add(&mut self, links: &mut Links, slot: u32, facts: &Facts) {
        let place = self
            .classes
            .iter()
            .position(|(priority, _)| *priority >= facts.priority);
        let place = place.unwrap_or(self.classes.len());
        if self
            .classes
            .get(place)
            .is_none_or(|(priority, _)| *priority != facts.priority)
        {
            self.classes.insert(place, (facts.priority, List::EMPTY));
        }
        links.push_back(&mut self.classes[place].1, slot);
        if facts.batchable {
            self.rows += u64::from(facts.rows);
        } else {
            self.solo += 1;
        }
        self.due += u32::from(facts.due);
    }

    pub(super) fn remove(&mut self, links: &mut Links, slot: u32, facts: &Facts) {
        let place = self
            .classes
            .iter()
            .position(|(priority, _)| *priority == facts.priority);
        let Some(place) = place else { return };
        links.remove(&mut self.classes[place].1, slot);
        if self.classes[place].1.is_empty() {
            self.classes.remove(place);
        }
        if facts.batchable {
            self.rows -= u64::from(facts.rows);
        } else {
            self.solo -= 1;
        }
        self.due -= u32::from(facts.due);
    }
}

/// The groups in use, found by key. A group exists while it has requests, so memory follows the
/// queue's length and not the number of keys ever seen.
#[derive(Debug)]
pub(super) struct Groups<K> {
    by_key: HashMap<K, u32>,
    groups: Vec<Group<K>>,
    free: Vec<u32>,
}

impl<K: Hash + Eq + Clone> Groups<K> {
    pub(super) fn new() -> Groups<K> {
        Groups {
            by_key: HashMap::new(),
            groups: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn get(&self, group: u32) -> &Group<K> {
        &self.groups[at(group)]
    }

    pub(super) fn get_mut(&mut self, group: u32) -> &mut Group<K> {
        &mut self.groups[at(group)]
    }

    pub(super) fn key(&self, group: u32) -> Option<&K> {
        self.groups[at(group)].key.as_ref()
    }

    /// The group of `key`, made if need be; `None` only when all slots are in use.
    pub(super) fn find_or_add(&mut self, key: K) -> Option<u32> {
        if let Some(group) = self.by_key.get(&key) {
            return Some(*group);
        }
        let group = match self.free.pop() {
            Some(group) => group,
            None => {
                let group = u32::try_from(self.groups.len())
                    .ok()
                    .filter(|g| *g != NONE)?;
                let classes = Vec::with_capacity(CLASSES_KEPT);
                self.groups.push(Group {
                    key: None,
                    classes,
                    rows: 0,
                    solo: 0,
                    due: 0,
                });
                self.free.reserve(self.groups.len());
                // Twice the members: a table with that much room clears the traces of removed
                // keys in place, where a fuller one would grow.
                self.by_key.reserve(2 * self.groups.len());
                group
            }
        };
        self.groups[at(group)].key = Some(key.clone());
        self.by_key.insert(key, group);
        Some(group)
    }

    /// Gives an empty group's slot back.
    pub(super) fn release(&mut self, group: u32) {
        let slot = &mut self.groups[at(group)];
        slot.classes.shrink_to(CLASSES_KEPT);
        if let Some(key) = slot.key.take() {
            self.by_key.remove(&key);
            self.free.push(group);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}

//! How deeply a file nests bodies and types, told from its bytes. The decoder gives up on deep
//! messages, and does not say where; this walk does not recurse and reads nothing but lengths.

use crate::bodies::MAX_NESTING;

/// Types nested deeper are refused; a sequence of optional tensors has three levels.
pub(crate) const MAX_TYPE_NESTING: usize = 8;

/// What a file nests too deeply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TooDeep {
    /// The outermost node and its operator.
    Bodies(String),
    /// The value, as far as it has a name.
    Type(String),
}

/// The messages on the way to bodies and types.
#[derive(Clone, Copy, PartialEq)]
enum Message {
    Model,
    Training,
    Function,
    Graph,
    Node,
    Attribute,
    Value,
    Type,
    /// A sequence, map or optional, by the field that holds its element's type.
    Container(u64),
}

impl Message {
    /// What the field `number` of the message holds, where it leads on.
    fn child(self, number: u64) -> Option<Message> {
        Some(match (self, number) {
            (Message::Model, 7) | (Message::Training, 1 | 2) | (Message::Attribute, 6 | 11) => {
                Message::Graph
            }
            (Message::Model, 20) => Message::Training,
            (Message::Model, 25) => Message::Function,
            (Message::Function, 7) | (Message::Graph, 1) => Message::Node,
            (Message::Function, 12) | (Message::Graph, 11..=13) => Message::Value,
            (Message::Node, 5) => Message::Attribute,
            (Message::Value, 2) | (Message::Attribute, 14 | 15) => Message::Type,
            (Message::Type, 4 | 9) => Message::Container(1),
            (Message::Type, 5) => Message::Container(2),
            (Message::Container(element), number) if number == element => Message::Type,
            _ => return None,
        })
    }
}

/// A message that is still to be looked at.
#[derive(Clone, Copy)]
struct Place<'a> {
    message: Message,
    bytes: &'a [u8],
    bodies: usize,
    types: usize,
    /// The node or value of the outermost graph that it belongs to.
    outermost: Option<(Message, &'a [u8])>,
}

/// The first thing in `model` that nests deeper than Seamline reads. What is no protobuf is passed
/// over.
pub(crate) fn too_deep(model: &[u8]) -> Option<TooDeep> {
    let mut open = vec![Place {
        message: Message::Model,
        bytes: model,
        bodies: 0,
        types: 0,
        outermost: None,
    }];
    while let Some(place) = open.pop() {
        for (number, bytes) in Fields(place.bytes) {
            let Some(message) = place.message.child(number) else {
                continue;
            };
            let is_body = place.message == Message::Attribute && message == Message::Graph;
            let is_item = matches!(message, Message::Node | Message::Value);
            let next = Place {
                message,
                bytes,
                bodies: place.bodies + usize::from(is_body),
                types: place.types + usize::from(message == Message::Type),
                outermost: place.outermost.or(is_item.then_some((message, bytes))),
            };
            if next.bodies > MAX_NESTING || next.types > MAX_TYPE_NESTING {
                return next.outermost.map(name);
            }
            open.push(next);
        }
    }
    None
}

/// How errors name the node or value.
fn name((message, bytes): (Message, &[u8])) -> TooDeep {
    let text = |number| {
        let found = Fields(bytes).find(|field| field.0 == number);
        found.map_or_else(String::new, |(_, text)| {
            String::from_utf8_lossy(text).into_owned()
        })
    };
    match message {
        Message::Node => TooDeep::Bodies(match text(3) {
            name if name.is_empty() => format!("({}) that makes `{}`", text(4), text(2)),
            name => format!("`{name}` ({})", text(4)),
        }),
        _ => TooDeep::Type(text(1)),
    }
}

/// The fields of a message that have a length: number and content.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        loop {
            let tag = self.varint()?;
            match tag & 7 {
                0 => {
                    self.varint()?;
                }
                1 => self.0 = self.0.get(8..)?,
                5 => self.0 = self.0.get(4..)?,
                2 => {
                    let length = usize::try_from(self.varint()?).ok()?;
                    let (content, rest) = self.0.split_at_checked(length)?;
                    self.0 = rest;
                    return Some((tag >> 3, content));
                }
                _ => return None,
            }
        }
    }
}

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

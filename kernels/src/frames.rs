//! Frames: which inputs a kernel of a given form is tried on.
//!
//! Every frame runs many lengths, at several offsets into an allocation (so that slices are
//! aligned for no vector), on ordinary values and on the special ones of the type, and checks that
//! nothing outside the destination is written. Inputs are the same in every run.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::harness::Observed;

const LENGTHS: [usize; 24] = [
    0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 25, 31, 32, 33, 47, 63, 64, 65, 127, 128, 255, 257, 1000,
];

/// Elements by which slices are moved from the start of their allocation.
const OFFSETS: [usize; 3] = [0, 1, 5];

/// SplitMix64 (Steele et al., 2014): inputs do not change from run to run.
pub(crate) struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A type that inputs are drawn from.
pub(crate) trait Sample: Copy + Debug + PartialEq + 'static {
    const SPECIAL: &'static [Self];
    /// What surrounds a destination.
    const GUARD: Self;
    fn draw(rng: &mut Rng) -> Self;
    fn observe(self) -> Observed;
}

impl Sample for f32 {
    const SPECIAL: &'static [f32] = &[
        f32::NAN,
        // A signalling NaN with a payload, and a negative one.
        f32::from_bits(0x7f80_0001),
        f32::from_bits(0xffa5_5aa5),
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::from_bits(1),
        -f32::from_bits(0x007f_ffff),
        -0.0,
        0.0,
        f32::MAX,
        f32::MIN,
        65_504.0,
        65_519.996,
        65_520.0,
        -65_536.0,
        5.960_464_5e-8,
        2.980_232_2e-8,
        0.5,
        1.5,
        -2.5,
        126.5,
        127.5,
        -128.5,
    ];
    const GUARD: f32 = -12_345.678;

    fn draw(rng: &mut Rng) -> f32 {
        let bits = rng.next();
        #[allow(clippy::cast_possible_truncation, reason = "random bits: any will do")]
        let low = bits as u32;
        match bits >> 62 {
            // Any f32 at all, or one of the size of an activation.
            0 => f32::from_bits(low),
            _ => (f32::from_bits(0x3f80_0000 | (low >> 9)) - 1.5) * 20.0,
        }
    }

    fn observe(self) -> Observed {
        Observed::F32(self.to_bits())
    }
}

macro_rules! sample_ints {
    ($($ty:ty, $observed:ident as $wide:ty;)*) => {$(
        impl Sample for $ty {
            const SPECIAL: &'static [$ty] =
                &[0, 1, <$ty>::MAX, <$ty>::MIN, <$ty>::MAX - 1, <$ty>::MAX / 2];
            const GUARD: $ty = 0x5a;

            #[allow(
                clippy::cast_possible_truncation,
                clippy::unnecessary_cast,
                reason = "random bits: any will do"
            )]
            fn draw(rng: &mut Rng) -> $ty {
                rng.next() as $ty
            }

            fn observe(self) -> Observed {
                Observed::$observed(<$wide>::from(self))
            }
        }
    )*};
}

sample_ints! {
    i8, Signed as i64; i16, Signed as i64; i32, Signed as i64; i64, Signed as i64;
    u8, Bits as u64; u16, Bits as u64; u32, Bits as u64; u64, Bits as u64;
}

macro_rules! sample_bytes {
    ($($bytes:literal),*) => {$(
        impl Sample for [u8; $bytes] {
            const SPECIAL: &'static [Self] = &[[0; $bytes], [0xff; $bytes], [0x7f; $bytes]];
            const GUARD: Self = [0x5a; $bytes];

            fn draw(rng: &mut Rng) -> Self {
                let mut bytes = [0; $bytes];
                bytes.copy_from_slice(&rng.next().to_le_bytes()[..$bytes]);
                bytes
            }

            fn observe(self) -> Observed {
                let mut bytes = [0; 8];
                bytes[..$bytes].copy_from_slice(&self);
                Observed::Bits(u64::from_le_bytes(bytes))
            }
        }
    )*};
}

sample_bytes!(1, 2, 4, 8);

/// What a kernel returns besides what it writes.
pub(crate) trait Returned {
    /// How many values it is observed as.
    const VALUES: usize;
    fn observe(self) -> Vec<Observed>;
}

impl Returned for () {
    const VALUES: usize = 0;

    fn observe(self) -> Vec<Observed> {
        Vec::new()
    }
}

impl<T: Sample> Returned for T {
    const VALUES: usize = 1;

    fn observe(self) -> Vec<Observed> {
        vec![Sample::observe(self)]
    }
}

impl<T: Sample> Returned for Option<(T, T)> {
    const VALUES: usize = 2;

    fn observe(self) -> Vec<Observed> {
        let Some((a, b)) = self else {
            return vec![Observed::Bits(u64::MAX); 2];
        };
        vec![a.observe(), b.observe()]
    }
}

/// Elements `offset..offset + len` of `all`; ordinary values with special ones among them.
fn draw<T: Sample>(len: usize, offset: usize, salt: u64) -> Vec<T> {
    let mut rng = Rng((len as u64) << 32 | (offset as u64) << 16 | salt);
    let mut all: Vec<T> = (0..offset + len).map(|_| T::draw(&mut rng)).collect();
    // One pass in three is of ordinary values alone, as one NaN hides the rest of a reduction.
    if !salt.is_multiple_of(3) {
        for (at, x) in all.iter_mut().enumerate() {
            if rng.next().is_multiple_of(4) {
                let next = usize::try_from(rng.next() >> 33).unwrap();
                *x = T::SPECIAL[(next + at) % T::SPECIAL.len()];
            }
        }
    }
    all
}

/// A destination with guards around it.
struct Guarded<T> {
    all: Vec<T>,
    range: std::ops::Range<usize>,
}

impl<T: Sample> Guarded<T> {
    fn new(inside: &[T], offset: usize) -> Guarded<T> {
        let mut all = vec![T::GUARD; offset + inside.len() + 67];
        let range = offset..offset + inside.len();
        all[range.clone()].copy_from_slice(inside);
        Guarded { all, range }
    }

    fn inside(&mut self) -> &mut [T] {
        &mut self.all[self.range.clone()]
    }

    fn observe(&self, outputs: &mut Vec<Observed>) {
        let outside = self.all[..self.range.start]
            .iter()
            .chain(&self.all[self.range.end..]);
        for guard in outside {
            assert_eq!(*guard, T::GUARD, "written outside of the destination");
        }
        outputs.extend(
            self.all[self.range.clone()]
                .iter()
                .map(|&x| Sample::observe(x)),
        );
    }
}

/// Length, offset, salt of every case.
fn cases() -> impl Iterator<Item = (usize, usize, u64)> {
    LENGTHS.into_iter().flat_map(|len| {
        OFFSETS
            .into_iter()
            .flat_map(move |offset| (0..3).map(move |salt| (len, offset, salt)))
    })
}

/// The case and the element that output `at` came from, where a case of `len` elements gives
/// `outputs(len)` values.
fn origin(at: usize, outputs: impl Fn(usize) -> usize) -> (usize, usize, u64, usize) {
    let mut rest = at;
    for (len, offset, salt) in cases() {
        if rest < outputs(len) {
            return (len, offset, salt, rest);
        }
        rest -= outputs(len);
    }
    panic!("no case gave output {at}")
}

fn describe_element<S: Sample>(at: usize, outputs: impl Fn(usize) -> usize) -> String {
    let (len, offset, salt, element) = origin(at, outputs);
    let src = draw::<S>(len, offset, salt);
    match src.get(offset + element) {
        Some(x) if element < len => {
            format!("length {len}, offset {offset}, salt {salt}, element {element}: input {x:?}")
        }
        _ => format!("length {len}, offset {offset}, salt {salt}: the value returned"),
    }
}

/// `fn(&[S], &mut [D])`, element by element; what the destination held before may matter.
pub(crate) struct Map<S, D> {
    prepare: fn(D) -> D,
    form: PhantomData<S>,
}

impl<S: Sample, D: Sample> Map<S, D> {
    pub(crate) fn new() -> Self {
        Self::with_destination(|x| x)
    }

    /// `prepare` makes what the destination holds before the call.
    pub(crate) fn with_destination(prepare: fn(D) -> D) -> Self {
        Map {
            prepare,
            form: PhantomData,
        }
    }

    pub(crate) fn run(&self, kernel: &dyn Fn(&[S], &mut [D])) -> Vec<Observed> {
        let mut outputs = Vec::new();
        for (len, offset, salt) in cases() {
            let src = draw::<S>(len, offset, salt);
            let before: Vec<D> = draw(len, 0, salt + 3)
                .into_iter()
                .map(self.prepare)
                .collect();
            let mut dst = Guarded::new(&before, offset);
            kernel(&src[offset..], dst.inside());
            dst.observe(&mut outputs);
        }
        outputs
    }

    pub(crate) fn describe(&self, at: usize) -> String {
        describe_element::<S>(at, |len| len)
    }
}

/// A kernel of the form of [`MapWith`].
type MapWithKernel<'a, S, P, D, R> = dyn Fn(&[S], P, &mut [D]) -> R + 'a;

/// A kernel of the form of [`Each`].
type EachKernel<'a, S, P, D> = dyn Fn(&[S], &[P], &mut [D]) + 'a;

/// `fn(&[S], P, &mut [D]) -> R`.
pub(crate) struct MapWith<S, P: 'static, D> {
    parameters: &'static [P],
    form: PhantomData<(S, D)>,
}

impl<S: Sample, P: Copy + Debug, D: Sample> MapWith<S, P, D> {
    pub(crate) fn new(parameters: &'static [P]) -> Self {
        MapWith {
            parameters,
            form: PhantomData,
        }
    }

    pub(crate) fn run<R: Returned>(&self, kernel: &MapWithKernel<'_, S, P, D, R>) -> Vec<Observed> {
        let mut outputs = Vec::new();
        for &parameter in self.parameters {
            for (len, offset, salt) in cases() {
                let src = draw::<S>(len, offset, salt);
                let mut dst = Guarded::new(&vec![D::GUARD; len], offset);
                let returned = kernel(&src[offset..], parameter, dst.inside());
                dst.observe(&mut outputs);
                // One value a case more, so that the origin of each can be told.
                let returned = returned.observe().first().copied();
                outputs.push(returned.unwrap_or(Observed::Bits(0)));
            }
        }
        outputs
    }

    pub(crate) fn describe(&self, at: usize) -> String {
        let each: usize = cases().map(|(len, ..)| len + 1).sum();
        let parameter = self.parameters[at / each];
        let element = describe_element::<S>(at % each, |len| len + 1);
        format!("parameter {parameter:?}, {element}")
    }
}

/// `fn(&[S], &[P], &mut [D])`, all of one length.
pub(crate) struct Each<S, P, D>(PhantomData<(S, P, D)>);

impl<S: Sample, P: Sample, D: Sample> Each<S, P, D> {
    pub(crate) fn new() -> Self {
        Each(PhantomData)
    }

    pub(crate) fn run(&self, kernel: &EachKernel<'_, S, P, D>) -> Vec<Observed> {
        let mut outputs = Vec::new();
        for (len, offset, salt) in cases() {
            let src = draw::<S>(len, offset, salt);
            let parameters = draw::<P>(len, 1, salt + 3);
            let mut dst = Guarded::new(&vec![D::GUARD; len], offset);
            kernel(&src[offset..], &parameters[1..], dst.inside());
            dst.observe(&mut outputs);
        }
        outputs
    }

    pub(crate) fn describe(&self, at: usize) -> String {
        let (len, _, salt, element) = origin(at, |len| len);
        let parameter = draw::<P>(len, 1, salt + 3)[1 + element];
        format!(
            "{}, with {parameter:?}",
            describe_element::<S>(at, |len| len)
        )
    }
}

/// `fn(&[S]) -> R`.
pub(crate) struct Reduce<S, R>(PhantomData<(S, R)>);

impl<S: Sample, R: Returned> Reduce<S, R> {
    pub(crate) fn new() -> Self {
        Reduce(PhantomData)
    }

    pub(crate) fn run(&self, kernel: &dyn Fn(&[S]) -> R) -> Vec<Observed> {
        let mut outputs = Vec::new();
        for (len, offset, salt) in cases() {
            let src = draw::<S>(len, offset, salt);
            outputs.extend(kernel(&src[offset..]).observe());
        }
        outputs
    }

    pub(crate) fn describe(&self, at: usize) -> String {
        let (len, offset, salt, _) = origin(at, |_| R::VALUES);
        let src = draw::<S>(len, offset, salt);
        format!(
            "length {len}, offset {offset}, salt {salt}: input {:?}",
            &src[offset..]
        )
    }
}

/// Booleans to bits.
pub(crate) struct Pack;

impl Pack {
    pub(crate) fn new() -> Self {
        Pack
    }

    pub(crate) fn run(&self, kernel: &dyn Fn(&[u8], &mut [u8])) -> Vec<Observed> {
        let mut outputs = Vec::new();
        for (len, offset, salt) in cases() {
            let src = bools(len, offset, salt);
            let mut dst = Guarded::new(&vec![0xff; len.div_ceil(8)], offset);
            kernel(&src[offset..], dst.inside());
            dst.observe(&mut outputs);
        }
        outputs
    }

    pub(crate) fn describe(&self, at: usize) -> String {
        let (len, offset, salt, byte) = origin(at, |len| len.div_ceil(8));
        let src = bools(len, offset, salt);
        let from = offset + byte * 8;
        let to = src.len().min(from + 8);
        format!(
            "length {len}, offset {offset}, salt {salt}, byte {byte}: {:?}",
            &src[from..to]
        )
    }
}

/// Bytes of which half are zero.
fn bools(len: usize, offset: usize, salt: u64) -> Vec<u8> {
    let mut bytes = draw::<u8>(len, offset, salt);
    for byte in &mut bytes {
        if byte.count_ones().is_multiple_of(2) {
            *byte = 0;
        }
    }
    bytes
}

/// Bits to booleans.
pub(crate) struct Unpack;

impl Unpack {
    pub(crate) fn new() -> Self {
        Unpack
    }

    pub(crate) fn run(&self, kernel: &dyn Fn(&[u8], &mut [u8])) -> Vec<Observed> {
        let mut outputs = Vec::new();
        for (len, offset, salt) in cases() {
            let src = draw::<u8>(len.div_ceil(8), offset, salt);
            let mut dst = Guarded::new(&vec![9; len], offset);
            kernel(&src[offset..], dst.inside());
            dst.observe(&mut outputs);
        }
        outputs
    }

    pub(crate) fn describe(&self, at: usize) -> String {
        let (len, offset, salt, element) = origin(at, |len| len);
        let src = draw::<u8>(len.div_ceil(8), offset, salt);
        let byte = src[offset + element / 8];
        format!("length {len}, offset {offset}, salt {salt}, element {element}: byte {byte:#010b}")
    }
}

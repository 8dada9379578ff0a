use super::*;

const SEED: u64 = 11;

fn random(seed: u64) -> fastrand::Rng {
    eprintln!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// Smooth pictures [1, 3, `side`, `side`]: sums of a few waves, as photographs are mostly smooth.
fn pictures(count: usize, side: usize) -> Vec<Tensor> {
    let mut random = random(SEED);
    let picture = |_| {
        let waves: Vec<[f32; 4]> = (0..6)
            .map(|_| {
                [
                    random.f32() * 4.0,
                    random.f32() * 4.0,
                    random.f32() * 6.3,
                    random.f32(),
                ]
            })
            .collect();
        let at = |channel: usize, y: usize, x: usize| -> f32 {
            let (y, x) = (y as f32 / side as f32, x as f32 / side as f32);
            let wave = |[a, b, phase, size]: &[f32; 4]| {
                size * (6.3 * (a * y + b * x) + phase + channel as f32).sin()
            };
            waves.iter().map(wave).sum()
        };
        let places =
            (0..3).flat_map(|c| (0..side).flat_map(move |y| (0..side).map(move |x| (c, y, x))));
        Tensor::from_vec(
            vec![1, 3, side, side],
            places.map(|(c, y, x)| at(c, y, x)).collect(),
        )
        .unwrap()
    };
    (0..count).map(picture).collect()
}

fn picture_attacker(pictures: &[Tensor]) -> Attacker {
    let target = Target::pictures("x".into(), "x", pictures.to_vec(), pictures).unwrap();
    Attacker::of(target, SEED).unwrap()
}

fn vectors(count: usize, width: usize) -> Vec<Tensor> {
    let mut random = random(SEED);
    let row = |_| {
        let values = (0..width).map(|_| random.f32() - 0.5).collect();
        Tensor::from_vec(vec![1, width], values).unwrap()
    };
    (0..count).map(row).collect()
}

fn vector_attacker(vectors: &[Tensor]) -> Attacker {
    let target = Target::sequences("x".into(), vectors.to_vec(), vectors).unwrap();
    Attacker::of(target, SEED).unwrap()
}

fn each(inputs: &[Tensor], map: impl Fn(&Tensor) -> Tensor) -> Vec<Vec<Tensor>> {
    inputs.iter().map(|input| vec![map(input)]).collect()
}

/// A convolution of 3 × 3, stride `stride`, with random weights, and a ReLU.
fn convolved(input: &Tensor, channels: usize, stride: usize) -> Tensor {
    let side = input.shape()[3];
    let mut random = fastrand::Rng::with_seed(3);
    let weights: Vec<f32> = (0..channels * 27).map(|_| random.f32() - 0.5).collect();
    let pixels = input.as_slice::<f32>().unwrap();
    let out = side / stride;
    let mut values = Vec::new();
    for kernel in weights.chunks_exact(27) {
        for (y, x) in (0..out * out).map(|place| (place / out * stride, place % out * stride)) {
            let mut sum = 0.0;
            for (tap, weight) in kernel.iter().enumerate() {
                let (channel, down, right) = (tap / 9, tap % 9 / 3, tap % 3);
                let (y, x) = ((y + down).wrapping_sub(1), (x + right).wrapping_sub(1));
                if y < side && x < side {
                    sum += weight * pixels[channel * side * side + y * side + x];
                }
            }
            values.push(sum.max(0.0));
        }
    }
    Tensor::from_vec(vec![1, channels, out, out], values).unwrap()
}

#[test]
fn the_input_itself_is_recovered_and_a_constant_tells_nothing() {
    let inputs = pictures(12, 32);
    let attacker = picture_attacker(&inputs);
    assert!(attacker.record().at_input > 0.99);
    assert_eq!(
        (attacker.record().trained_on, attacker.record().tried_on),
        (8, 4)
    );
    let same = attacker
        .attack(&["a"], &each(&inputs, Tensor::clone))
        .unwrap();
    assert!(
        same.recovered > 0.99 && same.psnr_db.unwrap() > 30.0,
        "{same:?}"
    );
    let constant = |_: &Tensor| Tensor::from_vec(vec![1, 4, 8, 8], vec![1.0f32; 256]).unwrap();
    let nothing = attacker.attack(&["a"], &each(&inputs, constant)).unwrap();
    assert!(nothing.recovered < 0.01, "{nothing:?}");
}

#[test]
fn noise_tells_nothing() {
    let inputs = pictures(12, 32);
    let attacker = picture_attacker(&inputs);
    let mut random = random(5);
    let noise = inputs.iter().map(|_| {
        let values = (0..512).map(|_| random.f32()).collect();
        vec![Tensor::from_vec(vec![1, 8, 8, 8], values).unwrap()]
    });
    let leakage = attacker.attack(&["a"], &noise.collect::<Vec<_>>()).unwrap();
    assert!(leakage.recovered < 0.05, "{leakage:?}");
}

#[test]
fn an_untrained_convolution_hides_little() {
    let inputs = pictures(12, 32);
    let attacker = picture_attacker(&inputs);
    let fine = attacker
        .attack(&["a"], &each(&inputs, |input| convolved(input, 16, 1)))
        .unwrap();
    assert!(fine.recovered > 0.9, "{fine:?}");
    let coarse = attacker
        .attack(&["a"], &each(&inputs, |input| convolved(input, 16, 4)))
        .unwrap();
    assert!(
        coarse.recovered > 0.6 && coarse.recovered < fine.recovered,
        "{coarse:?} {fine:?}"
    );
}

#[test]
fn half_of_the_dimensions_is_about_half_of_the_input() {
    let inputs = vectors(150, 16);
    let attacker = vector_attacker(&inputs);
    let mut random = random(7);
    let map: Vec<f32> = (0..16 * 8).map(|_| random.f32() - 0.5).collect();
    let mapped = |input: &Tensor| {
        let input = input.as_slice::<f32>().unwrap();
        let product = |row: &[f32]| row.iter().zip(input).map(|(a, b)| a * b).sum::<f32>();
        Tensor::from_vec(vec![1, 8], map.chunks_exact(16).map(product).collect()).unwrap()
    };
    let leakage = attacker.attack(&["a"], &each(&inputs, mapped)).unwrap();
    assert!((0.35..0.65).contains(&leakage.recovered), "{leakage:?}");
    assert_eq!(leakage.psnr_db, None);
}

#[test]
fn an_attacker_too_weak_for_the_input_itself_gives_no_figure() {
    // Eight vectors to learn 500 free dimensions from.
    let inputs = vectors(12, 500);
    let target = Target::sequences("x".into(), inputs.clone(), &inputs).unwrap();
    let error = Attacker::of(target, SEED).err().unwrap().to_string();
    assert!(
        error.contains("too weak") && error.contains("8 requests"),
        "{error}"
    );
    // Of pictures only the attack by places is strong enough, and a vector has none.
    let inputs = pictures(12, 32);
    let pooled = |_: &Tensor| Tensor::from_vec(vec![1, 8], vec![0.5f32; 8]).unwrap();
    let error = picture_attacker(&inputs).attack(&["a"], &each(&inputs, pooled));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no places in common"), "{error}");
    let same = vec![inputs[0].clone(); 8];
    let same = Target::pictures("x".into(), "x", same.clone(), &same).unwrap();
    let error = Attacker::of(same, SEED).err().unwrap().to_string();
    assert!(error.contains("the same in all 8 requests"), "{error}");
    let few = Target::pictures("x".into(), "x", inputs[..5].to_vec(), &inputs[..5]).unwrap();
    let error = Attacker::of(few, SEED).err().unwrap().to_string();
    assert!(
        error.contains("5 calibration requests") && error.contains('6'),
        "{error}"
    );
}

#[test]
fn the_input_sent_is_compared_as_it_is() {
    let inputs = pictures(9, 16);
    let attacker = picture_attacker(&inputs);
    let same = attacker
        .attack(&["x"], &each(&inputs, Tensor::clone))
        .unwrap();
    assert_eq!((same.recovered, same.psnr_db), (1.0, Some(100.0)));
    let coarse = |input: &Tensor| {
        let values = input
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .map(|v| v.round())
            .collect();
        Tensor::from_vec(input.shape().to_vec(), values).unwrap()
    };
    let rounded = attacker.attack(&["x"], &each(&inputs, coarse)).unwrap();
    assert!(
        rounded.recovered < 0.99 && rounded.recovered > 0.5,
        "{rounded:?}"
    );
}

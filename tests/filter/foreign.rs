//! Filters of other products: hashes, positions and formulas against plain models of them.

#![expect(clippy::disallowed_methods, reason = "what decides is compared with the platform's own")]

use redis_bloom::filter::{
    Classic, Expansion, Family, Filter, Hash, Layer, LayerPlan, Plan, RedisBloom, Rule, Shape,
    Valkey,
    foreign::{guava, redisbloom},
};

use crate::support::{params, stack};

/// A filter of `family` of one full layer.
fn full(family: Family, capacity: u64, error_rate: f64, shape: Classic, expansion: u64) -> Filter {
    let layer = LayerPlan { capacity, items: capacity, error_rate, shape: Shape::Classic(shape) };
    let expansion = Expansion::new(expansion).expect("in range");
    let plan = Plan { family, error_rate, expansion, layers: vec![layer], ..Plan::default() };
    plan.allocate(u64::MAX).expect("memory")
}

fn shape(layer: &Layer) -> Classic {
    let Shape::Classic(shape) = layer.shape() else { panic!("{:?}", layer.shape()) };
    shape
}

fn redisbloom(hash64: bool, rounds: bool) -> Family {
    Family::RedisBloom(RedisBloom { hash64, rounds })
}

const WORD: Classic = Classic { bits: 64, bytes: 8, probes: 1, rule: Rule::Remainder };

/// MurmurHash64A and the 32-bit MurmurHash2, word by word.
fn murmur2(item: &[u8], seed: u64, long: bool) -> u64 {
    let (size, m, r) = if long { (8, 0xC6A4_A793_5BD1_E995, 47) } else { (4, 0x5BD1_E995, 24) };
    let mask = if long { u64::MAX } else { u64::from(u32::MAX) };
    let times = |word: u64| word.wrapping_mul(m) & mask;
    let mut hash = if long { seed ^ times(item.len() as u64) } else { seed ^ item.len() as u64 };
    for chunk in item.chunks(size) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(bytes);
        if chunk.len() < size {
            hash = times(hash ^ word);
            continue;
        }
        let word = times(word);
        let word = times(word ^ word >> r);
        hash = if long { times(hash ^ word) } else { times(hash) ^ word };
    }
    let (first, last) = if long { (47, 47) } else { (13, 15) };
    hash = times(hash ^ hash >> first);
    hash ^ hash >> last
}

/// MurmurHash3, 128 bits, byte by byte.
fn murmur3(item: &[u8], seed: u64) -> u128 {
    const C: [u64; 2] = [0x87C3_7B91_1142_53D5, 0x4CF5_AD43_2745_937F];
    let mut h = [seed; 2];
    let mixed = |half: usize, word: u64| {
        let word = word.wrapping_mul(C[half]).rotate_left([31, 33][half]);
        word.wrapping_mul(C[1 - half])
    };
    for block in item.chunks(16) {
        let mut bytes = [0; 16];
        bytes[..block.len()].copy_from_slice(block);
        let (words, _) = bytes.as_chunks::<8>();
        for half in [0, 1] {
            h[half] ^= mixed(half, u64::from_le_bytes(words[half]));
            if block.len() == 16 {
                h[half] = h[half].rotate_left([27, 31][half]).wrapping_add(h[1 - half]);
                let add = [0x52DC_E729, 0x3849_5AB5][half];
                h[half] = h[half].wrapping_mul(5).wrapping_add(add);
            }
        }
    }
    let finish = |mut word: u64| {
        for m in [0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53] {
            word = (word ^ word >> 33).wrapping_mul(m);
        }
        word ^ word >> 33
    };
    let sum = |[a, b]: [u64; 2]| [a.wrapping_add(b), a.wrapping_add(b).wrapping_add(b)];
    let [a, b] = sum(sum(h.map(|half| half ^ item.len() as u64)).map(finish));
    u128::from(b) << 64 | u128::from(a)
}

/// The verification value of SMHasher: hash the bytes 0, 1, .. i - 1 with seed 256 - i for i in
/// 0..256, then hash the concatenated hashes with seed 0.
fn verification<const N: usize>(hash: impl Fn(&[u8], u64) -> [u8; N]) -> u32 {
    let key: Vec<u8> = (0..=255).collect();
    let hashes: Vec<u8> = (0..256).flat_map(|i| hash(&key[..i], 256 - i as u64)).collect();
    let last = hash(&hashes, 0);
    u32::from_le_bytes([last[0], last[1], last[2], last[3]])
}

/// The models have the values of SMHasher's main.cpp for "Murmur2", "Murmur2B" (its name of 64A)
/// and "Murmur3F", and the filters have the hashes of the models at every length.
#[test]
fn murmur_hashes_pass_the_verification_of_smhasher() {
    let models = (
        verification(|item, seed| (murmur2(item, seed, false) as u32).to_le_bytes()),
        verification(|item, seed| murmur2(item, seed, true).to_le_bytes()),
        verification(|item, seed| murmur3(item, seed).to_le_bytes()),
    );
    assert_eq!(models, (0x2786_4C1E, 0x1F0D_3804, 0x6384_BA69));
    let filter = |family| full(family, 1, 0.5, WORD, 1);
    let (long, short) = (filter(redisbloom(true, false)), filter(redisbloom(false, false)));
    let guava = full(Family::Guava, 1, 0.5, Classic { rule: Rule::Mitz64, ..WORD }, 0);
    let bytes: Vec<u8> = (0..300_u32).map(|i| (i * i % 251) as u8).collect();
    for length in 0..=bytes.len() {
        let item = &bytes[..length];
        for (filter, seed, is_long) in
            [(&long, 0xC6A4_A793_5BD1_E995, true), (&short, 0x9747_B28C, false)]
        {
            let block = murmur2(item, seed, is_long);
            let probes = murmur2(item, block, is_long);
            assert_eq!(filter.hash(item), Hash { block, probes }, "{length} bytes, {is_long}");
        }
        let Hash { block, probes } = guava.hash(item);
        assert_eq!(u128::from(probes) << 64 | u128::from(block), murmur3(item, 0), "{length}");
    }
}

#[test]
fn the_positions_of_redisbloom_are_those_of_plain_double_hashing() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for bits in [1, 2, 3, 63, 64, 65, 576, 1 << 10, (1 << 10) + 7, 10_019] {
        for rule in [Rule::Remainder, Rule::LowBits] {
            let shape = Classic { bits, bytes: bits.div_ceil(8), probes: 40, rule };
            if !shape.is_sound() {
                continue;
            }
            let hashes = (0..500).map(|_| (next(), next())).chain([
                (0, 0),
                (u64::MAX, u64::MAX),
                (u64::MAX, 1),
                (1, u64::MAX),
                (bits, bits),
                (0, bits.wrapping_neg()),
            ]);
            for (block, probes) in hashes {
                let shape = Shape::Classic(shape);
                let plan = LayerPlan { capacity: 10, items: 0, error_rate: 0.5, shape };
                let mut layer = plan.empty().expect("memory");
                assert!(layer.add(Hash { block, probes }));
                let mut words = vec![0_u64; layer.bits().words().len()];
                for i in 0..40_u64 {
                    let at = block.wrapping_add(i.wrapping_mul(probes)) % bits;
                    words[(at / 64) as usize] |= 1 << (at % 64);
                }
                assert_eq!(
                    layer.bits().words(),
                    words,
                    "{bits} bits, {rule:?}, {block:#x} + i * {probes:#x}"
                );
            }
        }
    }
}

#[test]
fn the_logarithm_that_decides_the_probes_is_that_of_the_c_library() {
    const LN2_SQUARED: f64 = 0.480_453_013_918_201;
    let powers = (1..=1074).map(|n| 0.5_f64.powi(n));
    let decimals = (1..=300).flat_map(|n| (0..8).map(move |m| 10_f64.powi(-n) * 0.5_f64.powi(m)));
    for rate in powers.chain(decimals).filter(|&rate| rate > 0.0) {
        let by_library = (rate.ln() / LN2_SQUARED).abs();
        let ours = redisbloom::bits_per_item(rate);
        assert_eq!(redisbloom::probes(ours), redisbloom::probes(by_library), "{rate:e}");
        assert!((ours / by_library - 1.0).abs() < 5e-16, "{rate:e}");
    }
}

/// A layer that is added has a shape that decoders accept, and no shape near it is accepted.
#[test]
fn each_layer_that_is_added_fits_and_its_neighbours_do_not() {
    let sizes = [1, 2, 7, 100, 1_000, 12_345, 1 << 20];
    let rates = [0.998, 0.5, 0.2, 0.02, 0.01, 2e-4, 6e-7, 2e-12];
    for (capacity, rate) in sizes.iter().flat_map(|&size| rates.map(|rate| (size, rate))) {
        for rounds in [false, true] {
            let mut filter = full(redisbloom(true, rounds), capacity, rate, WORD, 2);
            filter.grow(|_| u64::MAX).expect("memory");
            let layer = filter.newest();
            let (shape, rate) = (shape(layer), layer.error_rate);
            let fits =
                |shape: &Classic| shape.is_sound() && redisbloom::fits(shape, layer.capacity, rate);
            assert!(fits(&shape), "{layer:?}");
            for wrong in [
                Classic { bits: shape.bits + 64, bytes: shape.bytes + 8, ..shape },
                Classic { bits: shape.bits * 2, bytes: shape.bytes * 2, ..shape },
                Classic { probes: shape.probes + 1, ..shape },
                Classic { bytes: shape.bytes + 1, ..shape },
            ] {
                assert!(!fits(&wrong), "{wrong:?} of {layer:?}");
            }
        }
        let filter = stack(&params(rate, capacity, 2, 0));
        let shape = shape(filter.newest());
        assert!(shape.is_sound() && Valkey::fits(&shape, capacity, rate), "{shape:?}");
        let (bits, bytes) = (shape.bits + 8, shape.bytes + 1);
        for wrong in [
            Classic { bits, bytes, ..shape },
            Classic { bits: shape.bits + 1, ..shape },
            Classic { bytes, ..shape },
            Classic { probes: shape.probes + 1, ..shape },
        ] {
            assert!(!Valkey::fits(&wrong, capacity, rate), "{wrong:?} of {shape:?}");
        }
    }
}

/// valkey-bloom computes the rate of a layer by the compiler's own power.
#[test]
fn the_rate_of_a_valkey_layer_is_exact_to_the_last_bit() {
    for tightening in [0.5_f64, 0.85, 0.1, 0.999_9, 1.0 / 3.0] {
        let valkey = Valkey { seed: [7; 32], tightening };
        for index in (0..200).chain([1_000, 12_345]) {
            let rate = tightening.powi(index);
            let expected = (index == 0 || rate > f64::MIN_POSITIVE).then_some(rate);
            assert_eq!(valkey.layer_rate(1.0, index as usize), expected, "{tightening}^{index}");
        }
    }
}

#[test]
fn the_rate_of_guavas_design_point_is_a_power_of_two_to_the_bit() {
    for probes in 1..=1_074 {
        let (_, rate) = guava::design(64, probes);
        // The IEEE 754 pattern of 2^-probes: a single bit, of the exponent or of a subnormal.
        let bits = match probes {
            1..=1_022 => (1_023 - u64::from(probes)) << 52,
            _ => 1 << (1_074 - probes),
        };
        assert_eq!(rate.to_bits(), bits, "{probes}");
    }
}

//! Prices of Osaka's precompiled contracts, from the specifications alone.

use alloy_primitives::U256;

/// Discounts of EIP-2537 by number of points, in thousandths of the full price.
const G1_DISCOUNTS: [u16; 128] = [
    1000, 949, 848, 797, 764, 750, 738, 728, 719, 712, 705, 698, 692, 687, 682, 677, 673, 669, 665,
    661, 658, 654, 651, 648, 645, 642, 640, 637, 635, 632, 630, 627, 625, 623, 621, 619, 617, 615,
    613, 611, 609, 608, 606, 604, 603, 601, 599, 598, 596, 595, 593, 592, 591, 589, 588, 586, 585,
    584, 582, 581, 580, 579, 577, 576, 575, 574, 573, 572, 570, 569, 568, 567, 566, 565, 564, 563,
    562, 561, 560, 559, 558, 557, 556, 555, 554, 553, 552, 551, 550, 549, 548, 547, 547, 546, 545,
    544, 543, 542, 541, 540, 540, 539, 538, 537, 536, 536, 535, 534, 533, 532, 532, 531, 530, 529,
    528, 528, 527, 526, 525, 525, 524, 523, 522, 522, 521, 520, 520, 519,
];
const G2_DISCOUNTS: [u16; 128] = [
    1000, 1000, 923, 884, 855, 832, 812, 796, 782, 770, 759, 749, 740, 732, 724, 717, 711, 704,
    699, 693, 688, 683, 679, 674, 670, 666, 663, 659, 655, 652, 649, 646, 643, 640, 637, 634, 632,
    629, 627, 624, 622, 620, 618, 615, 613, 611, 609, 607, 606, 604, 602, 600, 598, 597, 595, 593,
    592, 590, 589, 587, 586, 584, 583, 582, 580, 579, 578, 576, 575, 574, 573, 571, 570, 569, 568,
    567, 566, 565, 563, 562, 561, 560, 559, 558, 557, 556, 555, 554, 553, 552, 552, 551, 550, 549,
    548, 547, 546, 545, 545, 544, 543, 542, 541, 541, 540, 539, 538, 537, 537, 536, 535, 535, 534,
    533, 532, 532, 531, 530, 530, 529, 528, 528, 527, 526, 526, 525, 524, 524,
];

/// The gas of `contract` for `input`; `None` if the input is invalid.
pub(super) fn price(contract: u16, input: &[u8]) -> Option<u64> {
    let length = input.len() as u64;
    let words = length.div_ceil(32);
    let is_whole = |bytes: u64| length > 0 && length.is_multiple_of(bytes);
    match contract {
        0x01 => Some(3_000),
        0x02 => Some(60 + 12 * words),
        0x03 => Some(600 + 120 * words),
        0x04 => Some(15 + 3 * words),
        0x05 => power(input),
        0x06 => Some(150),
        0x07 => Some(6_000),
        0x08 => length
            .is_multiple_of(192)
            .then_some(45_000 + 34_000 * (length / 192)),
        0x09 => {
            let rounds = input.first_chunk().filter(|_| length == 213)?;
            Some(u64::from(u32::from_be_bytes(*rounds)))
        }
        0x0a => (length == 192).then_some(50_000),
        0x0b => (length == 256).then_some(375),
        0x0c => is_whole(160).then(|| sum(length / 160, 12_000, &G1_DISCOUNTS)),
        0x0d => (length == 512).then_some(600),
        0x0e => is_whole(288).then(|| sum(length / 288, 22_500, &G2_DISCOUNTS)),
        0x0f => is_whole(384).then_some(37_700 + 32_600 * (length / 384)),
        0x10 => (length == 64).then_some(5_500),
        0x11 => (length == 128).then_some(23_800),
        0x100 => Some(6_900),
        _ => None,
    }
}

fn sum(count: u64, each: u64, discounts: &[u16; 128]) -> u64 {
    let at = usize::try_from(count).unwrap_or(usize::MAX).min(128) - 1;
    count * each * u64::from(discounts[at]) / 1_000
}

/// EIP-7823 and EIP-7883.
fn power(input: &[u8]) -> Option<u64> {
    let bytes = |at: usize, count: usize| {
        let given = input.iter().skip(at).copied();
        given
            .chain(std::iter::repeat(0))
            .take(count)
            .collect::<Vec<u8>>()
    };
    let length = |at: usize| {
        let length = U256::from_be_slice(&bytes(32 * at, 32));
        usize::try_from(length)
            .ok()
            .filter(|length| *length <= 1_024)
    };
    let (base, exponent, modulus) = (length(0)?, length(1)?, length(2)?);
    let longest = base.max(modulus) as u64;
    let words = longest.div_ceil(8);
    let complexity = match longest {
        0..=32 => 16,
        _ => 2 * words * words,
    };
    let head = U256::from_be_slice(&bytes(96 + base, exponent.min(32)));
    let below = exponent.saturating_sub(32) as u64;
    let iterations = 16 * below + head.bit_len().saturating_sub(1) as u64;
    Some((complexity * iterations.max(1)).max(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_match_examples() {
        let eip_7883 = [
            vec![0; 31],
            vec![1],
            vec![0; 31],
            vec![32],
            vec![0; 31],
            vec![32],
            vec![3],
            vec![0xff; 64],
        ];
        assert_eq!(price(5, &eip_7883.concat()), Some(16 * 255));
        assert_eq!(price(5, &[]), Some(500));
        assert_eq!(price(5, &[0xff; 96]), None);
        assert_eq!(price(0x0c, &[0; 320]), Some(2 * 12_000 * 949 / 1_000));
        assert_eq!(
            price(0x0e, &[0; 288 * 200]),
            Some(200 * 22_500 * 524 / 1_000)
        );
        assert_eq!(price(8, &[0; 191]), None);
        assert_eq!(price(8, &[]), Some(45_000));
        assert_eq!(price(2, &[0; 33]), Some(84));
    }
}

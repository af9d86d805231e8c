//! Inputs: a valid one of the target, changed in its structure or byte by byte, and sealed.

mod tree;

use niwaki_network::fuzz::{Form, Target};
use rand::Rng;
use rand::rngs::SmallRng;
use tree::Item;

/// Bytes that often mean something.
const SPECIAL: [u8; 14] = [
    0, 1, 0x7f, 0x80, 0x81, 0xb7, 0xb8, 0xbf, 0xc0, 0xc1, 0xf7, 0xf8, 0xfb, 0xff,
];

/// Words of the texts.
const WORDS: [&str; 17] = [
    "enode://",
    "enr:",
    "enrtree://",
    "enrtree-branch:",
    "enrtree-root:v1",
    " e=",
    " l=",
    " seq=",
    " sig=",
    "@",
    ":",
    "[::1]",
    "?discport=",
    ",",
    " ",
    "\n",
    "18446744073709551616",
];

/// Most bytes of an input that is made long by repeating parts of it.
const MAX_LONG_BYTES: usize = 256 << 10;

/// The next input of a target.
pub(super) fn input(target: &Target, rng: &mut SmallRng) -> Vec<u8> {
    let mut body = match rng.random_ratio(1, 20) {
        true => random_bytes(rng),
        false => target.valid(rng),
    };
    match rng.random_range(0..10) {
        0 => (),
        1..=5 => change_structure(target.form, &mut body, rng),
        _ => change_bytes(&mut body, rng),
    }
    let mut input = target.seal(body, rng);
    if rng.random_ratio(1, 10) {
        change_bytes(&mut input, rng);
    }
    input
}

fn random_bytes(rng: &mut SmallRng) -> Vec<u8> {
    (0..rng.random_range(0..300))
        .map(|_| rng.random())
        .collect()
}

fn change_structure(form: Form, body: &mut Vec<u8>, rng: &mut SmallRng) {
    match form {
        Form::Rlp(prefix) if body.len() >= prefix => {
            let rest = body.split_off(prefix);
            let mut items = tree::parse(&rest);
            for _ in 0..rng.random_range(1..4) {
                change_items(&mut items, rng);
            }
            body.extend(tree::write(&items));
        }
        Form::Text => change_text(body, rng),
        Form::Rlp(_) | Form::Bytes => change_bytes(body, rng),
    }
}

/// Changes one of the items, or one inside it.
fn change_items(items: &mut Vec<Item>, rng: &mut SmallRng) {
    if items.is_empty() {
        items.push(random_item(rng));
        return;
    }
    let at = rng.random_range(0..items.len());
    if let Item::List(inner) = &mut items[at]
        && rng.random_ratio(4, 5)
    {
        return change_items(inner, rng);
    }
    match rng.random_range(0..12) {
        0 => drop(items.remove(at)),
        1 => items.insert(at, items[at].clone()),
        2 => items[at] = random_item(rng),
        3 => items.insert(at, random_item(rng)),
        4 => {
            let other = rng.random_range(0..items.len());
            items.swap(at, other);
        }
        5 => items.truncate(at),
        6 => items[at] = Item::List(vec![items[at].clone()]),
        7 => items[at] = Item::Raw(tree::wrong_length(&items[at], rng)),
        // Rare, because long inputs take long: it shows what many small items cost.
        8 if rng.random_ratio(1, 16) => {
            let bytes = tree::write(&items[at..=at]).len().max(1);
            let most = MAX_LONG_BYTES / bytes;
            let count = rng.random_range(0..=most.max(1));
            let copies = vec![items[at].clone(); count];
            items.splice(at..at, copies);
        }
        _ => match &mut items[at] {
            Item::String(bytes) | Item::Raw(bytes) => change_bytes(bytes, rng),
            Item::List(_) => items[at] = random_item(rng),
        },
    }
}

fn random_item(rng: &mut SmallRng) -> Item {
    match rng.random_range(0..8) {
        0 => Item::List(Vec::new()),
        1 => Item::List(
            (0..rng.random_range(0..4))
                .map(|_| random_item(rng))
                .collect(),
        ),
        2 => Item::Raw(random_bytes(rng)),
        3 => Item::String(vec![0xff; rng.random_range(1..40)]),
        4 => Item::String(Vec::new()),
        5 => Item::String(vec![0; rng.random_range(1..40)]),
        _ => {
            let length = *[1, 2, 4, 8, 9, 16, 20, 32, 33, 56, 64, 65]
                .get(rng.random_range(0..12))
                .unwrap_or(&1);
            Item::String((0..length).map(|_| rng.random()).collect())
        }
    }
}

fn change_text(body: &mut Vec<u8>, rng: &mut SmallRng) {
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..=body.len());
        match rng.random_range(0..4) {
            0 => {
                let word = WORDS[rng.random_range(0..WORDS.len())];
                body.splice(at..at, word.bytes());
            }
            1 => repeat_part(body, rng),
            2 if at < body.len() => body[at] = body[at].wrapping_add(rng.random_range(1..4)),
            _ => {
                let letter = rng.random_range(0x20..0x7f_u8);
                body.insert(at, letter);
            }
        }
    }
}

fn repeat_part(body: &mut Vec<u8>, rng: &mut SmallRng) {
    if body.is_empty() {
        return;
    }
    let from = rng.random_range(0..body.len());
    let to = rng.random_range(from..body.len().min(from + 64)) + 1;
    let part = body[from..to].to_vec();
    let most = MAX_LONG_BYTES / part.len();
    let count = if rng.random_ratio(1, 500) {
        most
    } else {
        rng.random_range(1..4)
    };
    let at = rng.random_range(0..=body.len());
    body.splice(at..at, part.repeat(count));
}

fn change_bytes(body: &mut Vec<u8>, rng: &mut SmallRng) {
    for _ in 0..rng.random_range(1..5) {
        if body.is_empty() {
            body.push(rng.random());
            continue;
        }
        let at = rng.random_range(0..body.len());
        match rng.random_range(0..8) {
            0 => body[at] ^= 1 << rng.random_range(0..8),
            1 => body[at] = rng.random(),
            2 => body[at] = SPECIAL[rng.random_range(0..SPECIAL.len())],
            3 => body.insert(at, rng.random()),
            4 => drop(body.remove(at)),
            5 => body.truncate(at),
            6 => repeat_part(body, rng),
            _ => {
                let to = rng.random_range(at..body.len().min(at + 32)) + 1;
                body.drain(at..to);
            }
        }
    }
}

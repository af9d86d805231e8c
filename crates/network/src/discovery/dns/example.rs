//! The list of the specification (EIP-1459, "DNS Record Structure"), and lists made by the same rules.

use super::{EntryName, ListUrl};
use crate::key::{NodeId, NodeKey};
use crate::record::{Record, RecordEntries};
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use niwaki_crypto::keccak256;
use niwaki_primitives::B256;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// With the public key that the specification names, `0x049f8822..`. The key in its URL is that of the list which is linked to.
pub(crate) const URL: &str =
    "enrtree://AKPYQIUQIL7PSIACI32J7FGZW56E5FKHEFCCOFHILBIMW3M6LWXS2@nodes.example.org";

#[rustfmt::skip]
pub(crate) const ROOT_TEXT: &str = "enrtree-root:v1 e=JWXYDBPXYWG6FX3GMDIBFA6CJ4 l=C7HRFPF3BLGF3YR4DY5KX3SMBE seq=1 sig=o908WmNp7LibOfPsr4btQwatZJ5URBr2ZAuxvK4UWHlsB9sUOTJQaGAlLPVAhM__XJesCHxLISo94z5Z2a463gA";

/// Names and texts.
#[rustfmt::skip]
pub(crate) const ENTRIES: [(&str, &str); 5] = [
    ("C7HRFPF3BLGF3YR4DY5KX3SMBE", "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@morenodes.example.org"),
    ("JWXYDBPXYWG6FX3GMDIBFA6CJ4", "enrtree-branch:2XS2367YHAXJFGLZHVAWLQD4ZY,H4FHT4B454P6UXFD7JCYQ5PWDY,MHTDO6TMUBRIA2XWG5LUDACK24"),
    ("2XS2367YHAXJFGLZHVAWLQD4ZY", "enr:-HW4QOFzoVLaFJnNhbgMoDXPnOvcdVuj7pDpqRvh6BRDO68aVi5ZcjB3vzQRZH2IcLBGHzo8uUN3snqmgTiE56CH3AMBgmlkgnY0iXNlY3AyNTZrMaECC2_24YYkYHEgdzxlSNKQEnHhuNAbNlMlWJxrJxbAFvA"),
    ("H4FHT4B454P6UXFD7JCYQ5PWDY", "enr:-HW4QAggRauloj2SDLtIHN1XBkvhFZ1vtf1raYQp9TBW2RD5EEawDzbtSmlXUfnaHcvwOizhVYLtr7e6vw7NAf6mTuoCgmlkgnY0iXNlY3AyNTZrMaECjrXI8TLNXU0f8cthpAMxEshUyQlK-AM0PW2wfrnacNI"),
    ("MHTDO6TMUBRIA2XWG5LUDACK24", "enr:-HW4QLAYqmrwllBEnzWWs7I5Ev2IAs7x_dZlbYdRdMUx5EyKHDXp7AV5CkuPGUPdvbv1_Ms1CPfhcGCvSElSosZmyoqAgmlkgnY0iXNlY3AyNTZrMaECriawHKWdDRk2xeZkrOXBQ0dfMFLHY4eENZwdufn1S1o"),
];

/// TXT records by names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zone(pub(crate) HashMap<String, Vec<String>>);

pub(crate) fn key(number: u16) -> NodeKey {
    NodeKey::new(B256::left_padding_from(&(number + 1).to_be_bytes()))
        .expect("a small number is a key")
}

pub(crate) fn url_of(key: &NodeKey, domain: &str) -> ListUrl {
    let mut compressed = [0; 33];
    compressed[0] = 2 + (key.id().0[63] & 1);
    compressed[1..].copy_from_slice(&key.id().0[..32]);
    let key = BASE32_NOPAD.encode(&compressed);
    format!("enrtree://{key}@{domain}")
        .parse()
        .expect("it is the URL of a list")
}

/// Records of the first hundred keys, signed once: each signature is another one.
pub(crate) fn record_text(number: usize) -> String {
    static RECORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let entries = RecordEntries {
            ip: Some([10, 0, 0, 1].into()),
            tcp: 30303,
            ..RecordEntries::default()
        };
        let records = (0..100).map(|number| Record::sign(&key(number), 1, &entries));
        records
            .map(|record| record.expect("it is short").to_string())
            .collect()
    });
    RECORDS[number].clone()
}

impl Zone {
    fn put(&mut self, domain: &str, text: String) -> EntryName {
        let name = EntryName::of(&text);
        self.0.insert(format!("{name}.{domain}"), vec![text]);
        name
    }

    /// A tree of branches of three over these texts.
    fn put_tree(&mut self, domain: &str, texts: Vec<String>) -> EntryName {
        let mut names: Vec<_> = texts
            .into_iter()
            .map(|text| self.put(domain, text))
            .collect();
        loop {
            let branches = names.chunks(3).map(|names| {
                let names: Vec<String> = names.iter().map(EntryName::to_string).collect();
                format!("enrtree-branch:{}", names.join(","))
            });
            let branches: Vec<String> = branches.collect();
            match &branches[..] {
                [] => return self.put(domain, "enrtree-branch:".into()),
                [root] => return self.put(domain, root.clone()),
                _ => {
                    names = branches
                        .into_iter()
                        .map(|text| self.put(domain, text))
                        .collect()
                }
            }
        }
    }

    pub(crate) fn put_list(
        &mut self,
        key: &NodeKey,
        domain: &str,
        seq: u64,
        records: Vec<String>,
        links: Vec<String>,
    ) {
        let (e, l) = (self.put_tree(domain, records), self.put_tree(domain, links));
        let signed = format!("enrtree-root:v1 e={e} l={l} seq={seq}");
        let signature = BASE64URL_NOPAD.encode(&key.sign(&keccak256(&signed)));
        let texts = ["v=spf1 -all".into(), format!("{signed} sig={signature}")];
        self.0.insert(domain.into(), texts.into());
    }
}

pub(crate) fn ids(numbers: std::ops::Range<u16>) -> BTreeSet<NodeId> {
    numbers.map(|number| key(number).id()).collect()
}

pub(crate) fn records(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(record_text).collect()
}

pub(crate) const DOMAIN: &str = "list.example.org";

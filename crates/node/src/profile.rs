//! `niwaki profile`.

use crate::Outcome;
use crate::node_socket;
use crate::options::{Options, ProfileOptions};
use eyre::{Result, eyre};
use serde_json::json;

/// Has the node that runs on the data path profile itself.
pub(crate) fn run(options: &Options, profile: &ProfileOptions) -> Result<Outcome> {
    let node = node_socket::connect(options)?;
    let node =
        node.ok_or_else(|| eyre!("no node runs on this data path: name it by --data-path"))?;
    let folder = std::path::absolute(&profile.to)?;
    eprintln!("the node samples itself for {} s", profile.seconds);
    let paths = node_socket::call(node, "admin_profile", &json!([profile.seconds, folder]))?;
    let paths: Vec<&str> = paths
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|path| path.as_str())
        .collect();
    paths.iter().for_each(|path| println!("{path}"));
    if paths.len() < 4 {
        eprintln!("no profile of the heap: the node was started without --profile-heap-enabled");
    }
    Ok(Outcome::Done)
}

//! Computes the names of sources at the destination.

use std::collections::HashMap;

use longhaul_engine::send::source::last_name;

use crate::endpoint::Endpoint;

/// Returns a source's name at the destination; `None` if only its contents are copied there.
pub fn landing_name(source: &Endpoint) -> Option<&[u8]> {
    last_name(source.path()?)
}

/// Ensures that no two of these sources have the same name at the destination. They would replace
/// each other, and thread timing would decide which one remains.
///
/// # Errors
///
/// Returns a message for the user.
pub fn check_names<'a>(paths: impl IntoIterator<Item = &'a [u8]>) -> Result<(), String> {
    let mut seen = HashMap::new();
    for path in paths {
        let Some(name) = last_name(path) else {
            continue;
        };
        if let Some(other) = seen.insert(name, path) {
            let shown = String::from_utf8_lossy;
            return Err(format!(
                "two sources have the name {}, {} and {}: copy them to different destinations",
                shown(name),
                shown(other),
                shown(path)
            ));
        }
    }
    Ok(())
}

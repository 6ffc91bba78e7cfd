//! `longhaul fingerprint`: how a certificate's key is called.

use longhaul_engine::net::identity::Fingerprint;

use crate::arguments::FingerprintArguments;
use crate::messages::{Exit, Stop, finish};

/// Runs it.
pub fn run(arguments: &FingerprintArguments) -> Exit {
    let fingerprint = Fingerprint::of_pem_file(&arguments.certificate);
    finish(match fingerprint {
        Ok(fingerprint) => {
            println!("{fingerprint}");
            Ok(Exit::Done)
        }
        Err(error) => Err(Stop::because(Exit::Local, error)),
    })
}

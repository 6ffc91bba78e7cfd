//! `longhaul fingerprint`: prints the fingerprint of a certificate's key.

use longhaul_net::identity::Fingerprint;

use crate::arguments::FingerprintArguments;
use crate::messages::{Exit, Stop, finish, print_line};

/// Runs `longhaul fingerprint`.
pub fn run(arguments: &FingerprintArguments) -> Exit {
    let fingerprint = Fingerprint::of_pem_file(&arguments.certificate);
    finish(match fingerprint {
        Ok(fingerprint) => {
            print_line!("{fingerprint}");
            Ok(Exit::Done)
        }
        Err(error) => Err(Stop::because(Exit::Local, error)),
    })
}

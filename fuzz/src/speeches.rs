//! What a job and whoever follows it say to each other, and what is kept of it.

use std::fmt::Debug;

use crate::speech::{MAXIMUM_SAID_BYTES, Order, Speech, Told, frame_of, hear, is_name};

/// What is heard is within its bounds, and heard again when it is said.
pub fn job_speech(bytes: &[u8]) {
    both::<Told>(bytes);
    both::<Order>(bytes);
    if let Ok(Some(told)) = hear::<Told>(bytes) {
        check(&told);
    }
    if let Ok(told) = minicbor::decode::<Told>(bytes)
        && told.is_valid()
    {
        check(&told);
    }
}

/// The bytes as frames, and as the body of one whose checksum is right.
fn both<T: Speech + Debug + PartialEq>(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(heard)) = hear::<T>(&mut rest) {
        again(&heard);
    }
    if let Ok(decoded) = minicbor::decode::<T>(bytes) {
        match decoded.is_valid() {
            true => again(&decoded),
            false => assert!(frame_of(&decoded).is_err()),
        }
    }
}

fn again<T: Speech + Debug + PartialEq>(speech: &T) {
    // A long one that came as CBOR alone may not fit into a frame.
    let Ok(frame) = frame_of(speech) else {
        return;
    };
    let heard = hear::<T>(frame.as_slice()).expect("what was said");
    assert_eq!(heard.as_ref(), Some(speech));
}

fn check(told: &Told) {
    match told {
        Told::Named(name) => assert!(is_name(name) && !name.contains(['/', '.', ' '])),
        Told::Said(_, at, bytes) => {
            assert!(bytes.len() <= MAXIMUM_SAID_BYTES);
            assert!(at.checked_add(bytes.len() as u64).is_some());
        }
        Told::Listed(listed) => assert!(is_name(&listed.name)),
        Told::Running | Told::Progress(_) | Told::Ended(_) | Told::Failed(..) | Told::Absent => {}
    }
}

//! The messages between a job and its followers, and what a job keeps of them.

use std::fmt::Debug;

use longhaul_transfer::between_hosts::job_protocol::{
    JobEvent, JobMessage, MAXIMUM_OUTPUT_BYTES, Order, frame_of, is_name, receive,
};

/// Checks that a received message is within its bounds, and is received again after it is encoded.
pub fn job_speech(bytes: &[u8]) {
    both::<JobEvent>(bytes);
    both::<Order>(bytes);
    if let Ok(Some(told)) = receive::<JobEvent>(bytes) {
        check(&told);
    }
    if let Ok(told) = minicbor::decode::<JobEvent>(bytes)
        && told.is_valid()
    {
        check(&told);
    }
}

/// Reads the bytes as frames, and as the body of a frame with a correct checksum.
fn both<T: JobMessage + Debug + PartialEq>(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(heard)) = receive::<T>(&mut rest) {
        again(&heard);
    }
    if let Ok(decoded) = minicbor::decode::<T>(bytes) {
        if decoded.is_valid() {
            again(&decoded);
        } else {
            assert!(frame_of(&decoded).is_err());
        }
    }
}

fn again<T: JobMessage + Debug + PartialEq>(message: &T) {
    // A long message that was decoded from CBOR alone may not fit into a frame.
    let Ok(frame) = frame_of(message) else {
        return;
    };
    let heard = receive::<T>(frame.as_slice()).expect("what was said");
    assert_eq!(heard.as_ref(), Some(message));
}

fn check(told: &JobEvent) {
    match told {
        JobEvent::Named(name) => assert!(is_name(name) && !name.contains(['/', '.', ' '])),
        JobEvent::Output(_, at, bytes) => {
            assert!(bytes.len() <= MAXIMUM_OUTPUT_BYTES);
            assert!(at.checked_add(bytes.len() as u64).is_some());
        }
        JobEvent::Listed(listed) => assert!(is_name(&listed.name)),
        JobEvent::Running
        | JobEvent::Progress(_)
        | JobEvent::Ended(_)
        | JobEvent::Failed(..)
        | JobEvent::Alive
        | JobEvent::Absent => {}
    }
}

//! Hosts whose keys a principal has vouched for. Each may open one session as that principal for a
//! limited time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_net::identity::Fingerprint;
use longhaul_net::principals::{Principals, Proof};
use longhaul_proto::allowed::Allowed;

/// Validity of a vouching. It includes the time to start the other host.
pub const COUNTS_FOR: Duration = Duration::from_secs(300);

/// Maximum number of stored vouchings, in total and per principal. The oldest are dropped.
const MAXIMUM_WORDS: usize = 1024;
const MAXIMUM_OF_ONE: usize = 64;

/// A vouching by a principal.
pub struct Word {
    key: [u8; 32],
    /// Principal who vouched.
    pub principal: String,
    /// Credential of that principal.
    pub proof: Proof,
    /// Permitted requests; `None` permits all.
    pub allowed: Option<Allowed>,
    until: Instant,
}

/// Valid vouchings.
#[derive(Default)]
pub struct Vouched {
    words: Mutex<VecDeque<Word>>,
}

impl Vouched {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Word>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits the holder of the key to open a session as this principal, for requests that are
    /// `allowed`.
    pub fn add(
        &self,
        key: [u8; 32],
        (principal, proof, allowed): (&str, Proof, Option<Allowed>),
        now: Instant,
    ) {
        let mut words = self.lock();
        words.retain(|word| word.until > now && word.key != key);
        let own = |word: &Word| word.principal == principal;
        if words.iter().filter(|word| own(word)).count() >= MAXIMUM_OF_ONE
            && let Some(oldest) = words.iter().position(own)
        {
            words.remove(oldest);
        }
        if words.len() >= MAXIMUM_WORDS {
            words.pop_front();
        }
        words.push_back(Word {
            key,
            principal: principal.to_owned(),
            proof,
            allowed,
            until: now + COUNTS_FOR,
        });
    }

    /// Removes the vouchings of credentials that are no longer accepted.
    pub fn revoke(&self, principals: &Principals) {
        let accepts = |word: &Word| principals.accepts(&word.principal, &word.proof);
        self.lock().retain(accepts);
    }

    /// Restores a vouching that was taken without effect. Its validity is unchanged.
    pub fn give_back(&self, word: Word) {
        let mut words = self.lock();
        let is_there = words.iter().any(|other| other.key == word.key);
        if !is_there && words.len() < MAXIMUM_WORDS {
            words.push_back(word);
        }
    }

    /// Removes and returns the vouching for a key, which can be used once.
    pub fn take(&self, key: &Fingerprint, now: Instant) -> Option<Word> {
        let mut words = self.lock();
        let at = words
            .iter()
            .position(|word| word.key == *key.as_bytes() && word.until > now)?;
        words.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::identity::Identity;

    use super::*;

    fn key() -> Fingerprint {
        Identity::ephemeral().unwrap().fingerprint()
    }

    #[test]
    fn an_introduction_is_valid_once_and_for_a_limited_time() {
        let (vouched, key, now) = (Vouched::default(), key(), Instant::now());
        vouched.add(*key.as_bytes(), ("alice", Proof::Owner, None), now);
        assert!(vouched.take(&key, now + COUNTS_FOR).is_none());
        let word = vouched.take(&key, now).unwrap();
        assert_eq!((word.principal.as_str(), &word.allowed), ("alice", &None));
        assert!(vouched.take(&key, now).is_none());
        // The daemon was busy, so the vouching is valid again until its original end.
        vouched.give_back(word);
        assert!(vouched.take(&key, now + COUNTS_FOR).is_none());
        assert!(vouched.take(&key, now).is_some());
    }

    #[test]
    fn keys_of_one_principal_are_bounded_and_displace_no_others() {
        let (vouched, key, now) = (Vouched::default(), key(), Instant::now());
        vouched.add(*key.as_bytes(), ("alice", Proof::Owner, None), now);
        for number in 0..10_000_u32 {
            let mut other = [0; 32];
            other[..4].copy_from_slice(&number.to_le_bytes());
            vouched.add(other, ("mallory", Proof::Owner, None), now);
        }
        assert_eq!(vouched.lock().len(), MAXIMUM_OF_ONE + 1);
        assert_eq!(vouched.take(&key, now).unwrap().principal, "alice");
    }
}

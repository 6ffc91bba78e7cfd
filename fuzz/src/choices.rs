//! Bytes as a sequence of choices, for targets that play a state machine.

/// The rest of an input. Beyond its end every choice is 0.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes)
    }

    /// True if no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// 0 to `count` - 1; `count` is at least 1 and at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Takes at most `count` bytes.
    pub fn slice(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Eight bytes.
    pub fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        let slice = self.slice(8);
        word[..slice.len()].copy_from_slice(slice);
        u64::from_le_bytes(word)
    }

    /// A number where bugs are: small, about a power of two, or any.
    pub fn number(&mut self) -> u64 {
        let byte = self.byte();
        match byte >> 6 {
            0 => u64::from(byte),
            1 => 1 << (byte & 63),
            2 => (1_u64 << (byte & 63)).wrapping_sub(1 + u64::from(self.byte() & 3)),
            _ => match byte & 3 {
                0 => u64::MAX - u64::from(self.byte() & 3),
                1 => (i64::MAX as u64).wrapping_add(u64::from(self.byte() & 3)),
                2 => u64::from(self.byte()) << 10,
                _ => self.word(),
            },
        }
    }
}

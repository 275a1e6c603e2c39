//! Pseudo-random numbers.

/// Numbers that depend on the seed only.
#[derive(Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number, from 0 to `most - 1`.
    pub fn below(&mut self, most: usize) -> usize {
        // Constants of the generator MMIX.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

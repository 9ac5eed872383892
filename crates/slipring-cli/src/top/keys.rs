//! Turns the bytes from a terminal into keys. Bytes that are no known key have no effect.

use vte::{Params, Parser, Perform};

/// The request of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Quit,
    /// Stop the program, as a shell's job control does.
    Stop,
    /// Look at the segment now.
    Look,
    /// Draw everything anew.
    Redraw,
    /// Scroll by a number of rows.
    Scroll(isize),
    /// None: the terminal has gone.
    Gone,
}

/// Reads keys from bytes. The next read completes a sequence that a read has cut in two.
#[derive(Default)]
pub struct Keys(Parser);

impl Keys {
    /// Decodes the keys from bytes that a terminal sent at once.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut found = Found::default();
        if bytes == b"\x1b" {
            // The key Esc sends only the byte that begins a sequence.
            return vec![Key::Quit];
        }
        self.0.advance(&mut found, bytes);
        found.0
    }
}

#[derive(Default)]
struct Found(Vec<Key>);

impl Perform for Found {
    fn print(&mut self, c: char) {
        self.0.extend(match c {
            'q' => Some(Key::Quit),
            ' ' => Some(Key::Look),
            'k' => Some(Key::Scroll(-1)),
            'j' => Some(Key::Scroll(1)),
            _ => None,
        });
    }

    fn execute(&mut self, byte: u8) {
        self.0.extend(match byte {
            // Ctrl-C, Ctrl-D, Ctrl-\
            0x03 | 0x04 | 0x1c => Some(Key::Quit),
            0x0c => Some(Key::Redraw), // Ctrl-L
            0x1a => Some(Key::Stop),   // Ctrl-Z
            _ => None,
        });
    }

    fn csi_dispatch(&mut self, params: &Params, _: &[u8], ignored: bool, action: char) {
        let number = params.iter().next().and_then(|numbers| numbers.first()).copied();
        self.0.extend(match (action, number) {
            _ if ignored => None,
            ('A', _) => Some(Key::Scroll(-1)),
            ('B', _) => Some(Key::Scroll(1)),
            ('~', Some(5)) => Some(Key::Scroll(-10)),
            ('~', Some(6)) => Some(Key::Scroll(10)),
            ('H', _) | ('~', Some(1 | 7)) => Some(Key::Scroll(isize::MIN)),
            ('F', _) | ('~', Some(4 | 8)) => Some(Key::Scroll(isize::MAX)),
            _ => None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_also_in_parts_and_among_others() {
        let keys = |bytes: &[u8]| Keys::default().read(bytes);
        for (bytes, key) in [
            (&b"q"[..], Key::Quit),
            (b"\x03", Key::Quit),
            (b"\x1b", Key::Quit),
            (b"\x1a", Key::Stop),
            (b"\x0c", Key::Redraw),
            (b" ", Key::Look),
            (b"\x1b[A", Key::Scroll(-1)),
            (b"\x1b[6~", Key::Scroll(10)),
            (b"\x1b[H", Key::Scroll(isize::MIN)),
            (b"\x1b[8~", Key::Scroll(isize::MAX)),
        ] {
            assert_eq!(keys(bytes), [key], "{bytes:?}");
        }
        assert_eq!(keys(b"x\x1b[Bj"), [Key::Scroll(1); 2]);
        let mut parts = Keys::default();
        assert_eq!((parts.read(b"\x1b["), parts.read(b"B")), (vec![], vec![Key::Scroll(1)]));
        // Mouse reports, and bytes that are not UTF-8, are no keys.
        assert_eq!(keys(b"\x1b[<0;1;1M\x1b[M!!\xff\xfe\xc3"), []);
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut keys = Keys::default();
        for _ in 0..20_000 {
            let alphabet = b"\x1b[<;0129~MOABH\x03\xff\xc3\x90q";
            let length = random.usize(0..12);
            let byte = |random: &mut fastrand::Rng| match random.bool() {
                true => random.u8(..),
                false => alphabet[random.usize(..alphabet.len())],
            };
            let bytes: Vec<u8> = (0..length).map(|_| byte(&mut random)).collect();
            assert!(keys.read(&bytes).len() <= length.max(1));
        }
    }
}

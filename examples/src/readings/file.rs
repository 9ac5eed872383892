//! Reads a file as a whole: unpacks gzip, and recognises files of other kinds, which hold no CSV.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use flate2::bufread::GzDecoder;

use super::escape;

/// First bytes of gzip data.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Number of bytes that are searched for NUL bytes.
const SEARCHED: usize = 4096;

/// Reads a file, and unpacks it if it begins as gzip data does; its name does not matter.
///
/// # Errors
///
/// Fails if the file cannot be read, or if its gzip data is damaged. The error names the file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let name = escape::path(path);
    let bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    if bytes.starts_with(&GZIP) {
        return unpack(&bytes).with_context(|| format!("cannot unpack {name}"));
    }
    Ok(bytes)
}

/// Unpacks gzip data. As in `gzip`, the data may consist of several members, and zeros may follow
/// the last member, because tapes and block devices pad data with zeros.
fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let (mut unpacked, mut rest) = (Vec::new(), packed);
    while rest.starts_with(&GZIP) {
        let mut member = GzDecoder::new(rest);
        member.read_to_end(&mut unpacked).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                anyhow!("the gzip data is cut off: it goes on behind byte {}", packed.len())
            }
            _ => anyhow!(error).context("the gzip data is damaged"),
        })?;
        rest = member.into_inner();
    }
    if rest.iter().any(|&byte| byte != 0) {
        let (length, end) = (rest.len(), packed.len() - rest.len());
        bail!(
            "trailing garbage after gzip: the gzip data ends at byte {end}, and {length} bytes \
            follow that are neither gzip nor zeros"
        );
    }
    Ok(unpacked)
}

/// If a file does not look like text, returns a clause that names its kind and gives advice, for
/// example `this is a PDF file; ...`. Otherwise returns `None`.
///
/// The first bytes of a table can look like another format (a picture begins with `BM`), so call
/// this only for a file whose header has none of the needed columns.
pub fn kind(bytes: &[u8]) -> Option<String> {
    const UTF8: &str = "save it as UTF-8, or convert it with `iconv`";
    const UNPACK: &str = "unpack it first; only gzip is unpacked here";
    const EXPORT: &str = "save its table as CSV";
    let (kind, advice) = match bytes {
        // UTF-32 comes first, because its mark begins with the mark of UTF-16.
        [0xff, 0xfe, 0, 0, ..] => ("UTF-32 text (little-endian)", UTF8),
        [0, 0, 0xfe, 0xff, ..] => ("UTF-32 text (big-endian)", UTF8),
        [0xff, 0xfe, ..] => ("UTF-16 text (little-endian)", UTF8),
        [0xfe, 0xff, ..] => ("UTF-16 text (big-endian)", UTF8),
        [b'P', b'A', b'R', b'1', ..] => ("a Parquet file", EXPORT),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => ("an Arrow file (Feather)", EXPORT),
        [b'F', b'E', b'A', b'1', ..] => ("a Feather file", EXPORT),
        [0x1f, 0x8b, ..] => ("gzip data inside gzip data", "unpack it first"),
        _ => match infer::get(bytes).map(|kind| (kind.extension(), kind.mime_type())) {
            Some(("zip", _)) => (
                "a zip archive (an .xlsx spreadsheet is one)",
                "unpack it, or save the spreadsheet's table as CSV",
            ),
            Some(("xlsx", _)) => ("an Excel workbook (.xlsx)", EXPORT),
            Some(("ods", _)) => ("an OpenDocument spreadsheet (.ods)", EXPORT),
            Some(("doc" | "xls" | "ppt" | "msi", _)) => {
                ("an old Office file, such as .xls", EXPORT)
            }
            Some(("xz", _)) => ("xz data", UNPACK),
            Some(("zst", _)) => ("zstd data", UNPACK),
            Some(("bz2", _)) => ("bzip2 data", UNPACK),
            Some(("7z", _)) => ("a 7z archive", UNPACK),
            Some(("tar", _)) => ("a tar archive", "unpack it, and name one of its files"),
            Some((_, mime)) => return Some(format!("this is no CSV, but {mime}; {EXPORT}")),
            None => nul(&bytes[..bytes.len().min(SEARCHED)])?,
        },
    };
    Some(format!("this is {kind}; {advice}"))
}

/// Returns the kind of data that contains NUL bytes, and advice; `None` for data without them.
fn nul(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    const UTF16: &str = "save it as UTF-8, or convert it with `iconv`";
    // ASCII text in UTF-16 has a zero in every other byte.
    let zeros = |odd: usize| bytes.iter().skip(odd).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd, enough) = (zeros(0), zeros(1), bytes.len() / 4 + 1);
    match (even, odd) {
        (0, 0) => None,
        (0, odd) if odd >= enough => Some(("UTF-16 text (little-endian)", UTF16)),
        (even, 0) if even >= enough => Some(("UTF-16 text (big-endian)", UTF16)),
        _ => Some(("a binary file: it has NUL bytes", "save its table as CSV")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn members_and_zeros_may_follow_gzip_data_and_nothing_else() {
        let (one, two) = (gzip(b"one\n"), gzip(b"two\n"));
        for zeros in [0, 1, 511, 100_000] {
            let packed = [&one[..], &two, &vec![0; zeros]].concat();
            assert_eq!(unpack(&packed).unwrap(), b"one\ntwo\n", "{zeros} zeros");
        }
        for garbage in [&b"x"[..], b"\0x", &[&[0; 9][..], &two].concat(), b"\x1f"] {
            let error = unpack(&[&one, garbage].concat()).unwrap_err().to_string();
            let end = one.len();
            assert!(
                error.starts_with(&format!(
                    "trailing garbage after gzip: the gzip data ends at byte {end}, and {} bytes",
                    garbage.len()
                )),
                "{error}"
            );
        }
    }

    #[test]
    fn gzip_data_that_is_cut_off_or_damaged_says_so() {
        let packed = gzip(&b"some text, ".repeat(99));
        for length in 2..packed.len() {
            let error = unpack(&packed[..length]).unwrap_err().to_string();
            assert_eq!(error, format!("the gzip data is cut off: it goes on behind byte {length}"));
        }
        let mut damaged = packed.clone();
        let checksum = packed.len() - 8;
        damaged[checksum] ^= 1;
        let error = unpack(&damaged).unwrap_err().to_string();
        assert_eq!(error, "the gzip data is damaged");
    }

    #[test]
    fn files_that_are_no_csv_are_named() {
        let utf16 = |big: bool| -> Vec<u8> {
            let bytes = if big { u16::to_be_bytes } else { u16::to_le_bytes };
            "origin,temp,Zürich\n".encode_utf16().flat_map(bytes).collect()
        };
        let tar = {
            let mut block = vec![0; 512];
            block[..8].copy_from_slice(b"rows.csv");
            block[257..262].copy_from_slice(b"ustar");
            block
        };
        for (bytes, expected) in [
            ([&b"\xff\xfe"[..], &utf16(false)].concat(), "UTF-16 text (little-endian); save"),
            ([&b"\xfe\xff"[..], &utf16(true)].concat(), "UTF-16 text (big-endian); save"),
            (utf16(false), "UTF-16 text (little-endian); save"),
            (utf16(true), "UTF-16 text (big-endian); save"),
            (b"\xff\xfe\0\0o\0\0\0".to_vec(), "UTF-32 text (little-endian)"),
            (b"\0\0\xfe\xff\0\0\0o".to_vec(), "UTF-32 text (big-endian)"),
            (b"PK\x03\x04\x14\0\0\0\x08\0".to_vec(), "a zip archive (an .xlsx spreadsheet is one)"),
            (b"\xfd7zXZ\0\0\x04".to_vec(), "xz data; unpack it first"),
            (b"\x28\xb5\x2f\xfd\x24\x10\x81\0\0".to_vec(), "zstd data"),
            (b"BZh91AY&SY".to_vec(), "bzip2 data"),
            (b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "a 7z archive"),
            (tar, "a tar archive"),
            (b"PAR1\x15\x04\x15".to_vec(), "a Parquet file; save its table as CSV"),
            (b"ARROW1\0\0".to_vec(), "an Arrow file"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0".to_vec(), "an old Office file"),
            (b"SQLite format 3\0".to_vec(), "no CSV, but application/vnd.sqlite3"),
            (b"<!DOCTYPE html><html>".to_vec(), "no CSV, but text/html"),
            (gzip(b"origin"), "gzip data inside gzip data"),
            (b"\x01\x02a\0\0\0c".to_vec(), "a binary file: it has NUL bytes"),
        ] {
            let found = kind(&bytes).unwrap_or_default();
            assert!(found.starts_with(&format!("this is {expected}")), "{expected}: {found}");
        }
        for text in ["", "a,b\n1,2\n", "\u{feff}a;b", "Zürich\n"] {
            assert_eq!(kind(text.as_bytes()), None, "{text}");
        }
    }
}

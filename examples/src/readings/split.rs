//! Records of a file and fields of a record, by the rules of CSV: a field in quotes may hold the
//! delimiter, line ends, and quotes that are doubled.
//!
//! Records are found once, when the file is read, and every worker splits its own records again.
//! Both use [`Splitter`], so that they cannot disagree on where a field ends.

use anyhow::{Result, bail};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use memchr::{memchr2, memchr2_iter};

/// Maximum number of rows with a quote that is never closed. Each costs a search through the rest
/// of the file.
const MAX_UNCLOSED: u32 = 20;

/// Splits records into fields, and keeps the fields of the last record. It allocates only for a
/// record that is longer, or has more fields, than every record before.
#[derive(Debug)]
pub struct Splitter {
    reader: Reader,
    /// Text of all fields, without the quotes around them.
    text: Vec<u8>,
    /// End of each field in `text`.
    ends: Vec<usize>,
    /// Number of fields of the last record.
    fields: usize,
}

/// The result of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Number of bytes of the record with its line end. If the line end has two bytes, the number
    /// may include only the first.
    pub length: usize,
    /// Whether the record's last quote is closed.
    pub closed: bool,
}

impl Splitter {
    /// Makes a splitter of fields with this delimiter between them.
    pub fn new(delimiter: u8) -> Self {
        let mut reader = ReaderBuilder::new().delimiter(delimiter).build();
        // The CSV reader drops a byte order mark at the beginning of its first input. Here, each
        // input is one record, and a splitter may begin with any record of the file. So the reader
        // first gets an empty line, and then drops nothing from a record.
        reader.read_record(b"\n", &mut [0], &mut [0]);
        Self { reader, text: vec![0; 256], ends: vec![0; 32], fields: 0 }
    }

    /// Splits the record that `input` begins with; it must not begin with a blank line. The end of
    /// the input also ends the record.
    pub fn split(&mut self, input: &[u8]) -> Split {
        let (mut read, mut written) = (0, 0);
        self.fields = 0;
        // If the input does not end with a line end, the reader is given one. It ends the record,
        // unless the reader is inside quotes.
        let mut extra: &[u8] = b"\n";
        loop {
            let rest = if read < input.len() { &input[read..] } else { extra };
            let (result, taken, put, ended) = self.reader.read_record(
                rest,
                &mut self.text[written..],
                &mut self.ends[self.fields..],
            );
            written += put;
            self.fields += ended;
            if read < input.len() {
                read += taken;
            } else {
                extra = &extra[taken..];
            }
            match result {
                ReadRecordResult::Record => return Split { length: read, closed: true },
                ReadRecordResult::OutputFull => self.text.resize(2 * self.text.len(), 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::InputEmpty | ReadRecordResult::End => {
                    if read == input.len() && extra.is_empty() {
                        self.reader.reset();
                        return Split { length: read, closed: false };
                    }
                }
            }
        }
    }

    /// Returns the number of fields of the last record.
    pub fn len(&self) -> usize {
        self.fields
    }

    /// Returns whether all fields of the last record are empty.
    pub fn is_empty(&self) -> bool {
        self.ends[..self.fields].last().is_none_or(|&end| end == 0)
    }

    /// Returns the fields of the last record.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut start = 0;
        self.ends[..self.fields].iter().map(move |&end| {
            let field = &self.text[start..end];
            start = end;
            field
        })
    }

    /// Returns the field with this index in the last record.
    pub fn field(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends[..self.fields].get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }
}

/// A record's bytes in the text, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: usize,
    /// End of the record, its line end included.
    pub end: usize,
    /// Number of the line on which the record begins; the text's first line is line 1.
    pub line: u64,
    /// Whether the record's last quote is closed.
    pub closed: bool,
}

/// Finds the records of a text. Blank lines, and rows whose fields are all empty, are no records.
#[derive(Debug)]
pub struct Records<'a> {
    text: &'a [u8],
    /// Splitter with the fields of the last record.
    splitter: Splitter,
    at: usize,
    line: u64,
    unclosed: u32,
}

impl<'a> Records<'a> {
    /// Begins at byte `start` of a text, which is the beginning of its first line.
    pub fn new(text: &'a [u8], start: usize, delimiter: u8) -> Self {
        Self { text, splitter: Splitter::new(delimiter), at: start, line: 1, unclosed: 0 }
    }

    /// Returns the fields of the last record.
    pub fn splitter(&self) -> &Splitter {
        &self.splitter
    }

    /// Finds the next record.
    ///
    /// A quote that is never closed would take all later rows of the file into its record. So the
    /// record is cut at the end of its first line, and the next record begins there.
    ///
    /// # Errors
    ///
    /// Fails if the text has more than 20 rows with a quote that is never closed.
    pub fn next_record(&mut self) -> Result<Option<Range>> {
        loop {
            self.skip_line_ends();
            let (start, line) = (self.at, self.line);
            let rest = &self.text[start..];
            if rest.is_empty() {
                return Ok(None);
            }
            let Split { mut length, closed } = self.splitter.split(rest);
            if closed {
                self.at += length;
                // `skip_line_ends` counts the record's own line end.
                if matches!(rest[length - 1], b'\n' | b'\r') {
                    self.at -= 1;
                }
                self.line += line_ends(&self.text[start..self.at]);
                if self.splitter.is_empty() {
                    continue;
                }
            } else {
                self.unclosed += 1;
                if self.unclosed > MAX_UNCLOSED {
                    bail!(
                        "more than {MAX_UNCLOSED} rows have a quote that is never closed, the \
                        last one in line {line}"
                    );
                }
                length = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                self.at += length;
            }
            return Ok(Some(Range { start, end: start + length, line, closed }));
        }
    }

    fn skip_line_ends(&mut self) {
        while let Some(b'\n' | b'\r') = self.text.get(self.at) {
            self.line += line_ends_at(self.text, self.at);
            self.at += 1;
        }
    }
}

/// Returns the number of line ends in a text: `\n`, `\r\n`, and `\r` alone.
pub fn line_ends(text: &[u8]) -> u64 {
    memchr2_iter(b'\n', b'\r', text).map(|at| line_ends_at(text, at)).sum()
}

/// Returns the number of line ends at the byte `at`, which is `\n` or `\r`: 0 for the `\r` of
/// `\r\n`, otherwise 1.
fn line_ends_at(text: &[u8], at: usize) -> u64 {
    u64::from(text[at] == b'\n' || text.get(at + 1) != Some(&b'\n'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns line and fields of all records, as the workers split them.
    fn all(text: &[u8], delimiter: u8) -> Vec<(u64, Vec<Vec<u8>>)> {
        let (mut records, mut worker) =
            (Records::new(text, 0, delimiter), Splitter::new(delimiter));
        let mut all = Vec::new();
        while let Some(range) = records.next_record().unwrap() {
            let record = &text[range.start..range.end];
            let split = worker.split(record);
            assert_eq!(split, Split { length: record.len(), closed: range.closed });
            if range.closed {
                assert!(worker.fields().eq(records.splitter().fields()));
                assert!((0..worker.len()).all(|i| worker.field(i) == worker.fields().nth(i)));
                assert_eq!(worker.field(worker.len()), None);
            }
            all.push((range.line, worker.fields().map(<[u8]>::to_vec).collect()));
        }
        all
    }

    fn texts(bytes: &str) -> Vec<(u64, Vec<String>)> {
        let text = |field| String::from_utf8(field).unwrap();
        let fields = |(line, fields): (u64, Vec<_>)| (line, fields.into_iter().map(text).collect());
        all(bytes.as_bytes(), b',').into_iter().map(fields).collect()
    }

    #[test]
    fn quotes_hold_delimiters_line_ends_and_doubled_quotes() {
        let text = "\"a\",b\r\n\"c,\"\"d\"\"\",\"e\r\nf\n\"\n\n,\n\"\",\"\"\ng\"h,\"i\"j\n\"k\",";
        let expected =
            [(1, ["a", "b"]), (2, ["c,\"d\"", "e\r\nf\n"]), (8, ["g\"h", "ij"]), (9, ["k", ""])];
        assert_eq!(texts(text), expected.map(|(line, f)| (line, f.map(str::to_owned).to_vec())));
    }

    #[test]
    fn every_kind_of_line_end_counts_once() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("a{end}{end}\"b{end}{end}c\"{end}d{end}e");
            let lines: Vec<u64> = texts(&text).iter().map(|(line, _)| *line).collect();
            assert_eq!(lines, [1, 3, 6, 7], "{end:?}");
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_takes_only_its_line() {
        let records = texts("a,b\n\"c\n\",\"d\ne,f\ng,h");
        let lines: Vec<u64> = records.iter().map(|(line, _)| *line).collect();
        // The first quote of the record in line 2 is closed in line 3, and the second nowhere.
        assert_eq!(lines, [1, 2, 3, 4, 5]);
        assert_eq!(records[4].1, ["g", "h"]);
    }

    #[test]
    fn many_quotes_that_are_never_closed_end_the_search() {
        // At whichever line a reader begins, the last quote of the text is open.
        let text = "\"x,y\"z,\"w\n".repeat(MAX_UNCLOSED as usize);
        let mut records = Records::new(text.as_bytes(), 0, b',');
        for line in 1..=u64::from(MAX_UNCLOSED) {
            assert_eq!(records.next_record().unwrap().map(|range| range.line), Some(line));
        }
        assert_eq!(records.next_record().unwrap(), None);
        let text = text.repeat(2);
        let mut records = Records::new(text.as_bytes(), 0, b',');
        let error = (0..99).find_map(|_| records.next_record().err()).unwrap().to_string();
        assert!(error.contains("in line 21"), "{error}");
    }

    /// A splitter's first record may be any record of the file, so its first bytes are not taken
    /// for a byte order mark.
    #[test]
    fn the_first_record_of_a_splitter_is_like_every_other() {
        let mut splitter = Splitter::new(b',');
        for _ in 0..2 {
            splitter.split("\u{feff}a,b".as_bytes());
            assert_eq!(splitter.field(0), Some("\u{feff}a".as_bytes()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// The workers split the output of the `csv` crate's writer as the crate's reader does.
        #[test]
        fn fields_are_those_of_the_csv_crate(
            mut rows in prop::collection::vec(
                prop::collection::vec("[a-c\",;\t\r\n ü\u{feff}]{0,6}", 1..6), 0..12),
            delimiter in prop::sample::select(b",;\t| ".as_slice()),
            end in prop::sample::select(&["\n", "\r\n", "\r"][..]),
            always in any::<bool>(),
        ) {
            let mut writer = csv::WriterBuilder::new()
                .delimiter(delimiter)
                .terminator(match end {
                    "\r\n" => csv::Terminator::CRLF,
                    end => csv::Terminator::Any(end.as_bytes()[0]),
                })
                .quote_style(if always { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary })
                .flexible(true)
                .from_writer(Vec::new());
            // A field that begins with a byte order mark must not come first: the `csv` crate would
            // take the mark for the file's.
            rows.insert(0, vec!["header".to_owned()]);
            rows.iter().for_each(|row| writer.write_record(row).unwrap());
            let text = writer.into_inner().unwrap();

            let mut reader = csv::ReaderBuilder::new()
                .delimiter(delimiter)
                .has_headers(false)
                .flexible(true)
                .from_reader(text.as_slice());
            let mut expected = Vec::new();
            for record in reader.byte_records() {
                let record = record.unwrap();
                let fields: Vec<Vec<u8>> = record.iter().map(<[u8]>::to_vec).collect();
                if fields.iter().any(|field| !field.is_empty()) {
                    expected.push(fields);
                }
            }
            let found: Vec<_> = all(&text, delimiter).into_iter().map(|(_, row)| row).collect();
            prop_assert_eq!(&found, &expected);
            let written: Vec<Vec<Vec<u8>>> = rows
                .into_iter()
                .filter(|row| row.iter().any(|field| !field.is_empty()))
                .map(|row| row.into_iter().map(String::into_bytes).collect())
                .collect();
            prop_assert_eq!(found, written);
        }

        /// Splitting any bytes causes no panic, and every byte that is no line end lies in one
        /// record.
        #[test]
        fn records_cover_any_text(text in "[a\",\r\n]{0,40}") {
            let mut records = Records::new(text.as_bytes(), 0, b',');
            let mut before = 0;
            while let Ok(Some(range)) = records.next_record() {
                prop_assert!(before <= range.start && range.start < range.end);
                prop_assert_eq!(range.line, 1 + line_ends(&text.as_bytes()[..range.start]));
                before = range.end;
            }
        }
    }
}

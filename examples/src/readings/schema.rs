//! The rules by which the text of a file is read: delimiter, columns, missing values, and the zone
//! of its times.

use anyhow::{Result, anyhow, bail};
use jiff::tz::TimeZone;

use super::columns::Columns;
use super::file;
use super::format::{self, TimeFault};
use super::split::Splitter;

/// Texts that stand for a missing value, in upper or lower case, as R, spreadsheets, pandas and
/// databases write them. An empty field is a missing value, too.
pub const MISSING: [&str; 4] = ["NA", "N/A", "NaN", "null"];

/// Delimiters that are tried on the header, if the arguments name none.
const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// The user's statements about a file. The default is what most files need.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Byte between fields; without it, the header decides.
    pub delimiter: Option<u8>,
    /// Texts that stand for a missing value, in addition to [`MISSING`] and the empty field.
    pub missing: Vec<String>,
    /// Zone that applies to times that name none.
    pub zone: Option<TimeZone>,
}

/// The rules by which the text of one file is read.
#[derive(Clone, Debug)]
pub struct Schema {
    columns: Columns,
    delimiter: u8,
    missing: Vec<String>,
    /// Numbers that stand for a missing value, such as -999.
    missing_numbers: Vec<f64>,
    zone: Option<TimeZone>,
}

/// The content of a field that should be a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// A finite number.
    Value(f64),
    /// No value.
    Missing,
    /// The field is neither a number nor missing.
    Bad,
}

impl Schema {
    /// Finds delimiter and columns in the header that `text` begins with.
    ///
    /// If the options name no delimiter, tries comma, semicolon and tab in this order, and takes
    /// the first with which the header has all needed columns.
    ///
    /// # Errors
    ///
    /// - Fails if the text has no needed column and belongs to a file of another kind, which the
    ///   error names.
    /// - Fails if a needed column is missing, or is there twice.
    ///
    /// If several delimiters were tried, the error describes the best try: the delimiter that finds
    /// the most needed columns in the header. Among equally good delimiters, it is the one that
    /// finds the most columns.
    pub fn from_header(text: &[u8], options: &Options) -> Result<Self> {
        let mut best: Option<((usize, usize), anyhow::Error, u8)> = None;
        for delimiter in options.delimiter.map_or(DELIMITERS.to_vec(), |given| vec![given]) {
            let mut splitter = Splitter::new(delimiter);
            let error = if splitter.split(text).closed {
                match Columns::from_names(splitter.fields()) {
                    Ok(columns) => return Ok(Self::new(columns, delimiter, options)),
                    Err(error) => error,
                }
            } else {
                anyhow!("a quote in the header is never closed")
            };
            let found = (Columns::known(splitter.fields()), splitter.len());
            if best.as_ref().is_none_or(|(most, ..)| found > *most) {
                best = Some((found, error, delimiter));
            }
        }
        let ((known, _), error, delimiter) = best.expect("there is a delimiter to try");
        if known == 0
            && let Some(kind) = file::kind(text)
        {
            bail!(kind);
        }
        Err(match delimiter {
            b',' => error,
            b'\t' => error.context("with a tab as the delimiter"),
            other => error.context(format!("with '{}' as the delimiter", other.escape_ascii())),
        })
    }

    fn new(columns: Columns, delimiter: u8, options: &Options) -> Self {
        let given = options.missing.iter().map(|text| text.trim_ascii().to_owned());
        let missing: Vec<String> = given.chain(MISSING.map(str::to_owned)).collect();
        let missing_numbers =
            missing.iter().filter_map(|text| format::parse_number(text)).collect();
        Self { columns, delimiter, missing, missing_numbers, zone: options.zone.clone() }
    }

    /// Returns the columns of the file.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Returns the byte between fields.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Parses a field with a time as seconds since 1970.
    pub fn time(&self, field: &[u8]) -> Result<i64, TimeFault> {
        format::parse_time(field.trim_ascii(), self.zone.as_ref())
    }

    /// Parses a field with a reading. `scratch` is memory for a number with a decimal comma.
    pub fn reading(&self, field: &[u8], scratch: &mut String) -> Reading {
        let Ok(text) = str::from_utf8(field.trim_ascii()) else { return Reading::Bad };
        match format::parse_number(text).or_else(|| self.decimal_comma(text, scratch)) {
            Some(value) if self.missing_numbers.contains(&value) => Reading::Missing,
            Some(value) => Reading::Value(value),
            None if text.is_empty() => Reading::Missing,
            None if self.missing.iter().any(|m| m.eq_ignore_ascii_case(text)) => Reading::Missing,
            None => Reading::Bad,
        }
    }

    /// Parses a number with a decimal comma, as in countries whose spreadsheets put semicolons
    /// between fields.
    fn decimal_comma(&self, text: &str, scratch: &mut String) -> Option<f64> {
        let (whole, fraction) = text.split_once(',').filter(|_| self.delimiter != b',')?;
        scratch.clear();
        scratch.extend([whole, ".", fraction]);
        format::parse_number(scratch)
    }
}

/// The tools of a thread that parses rows. Each thread has its own, because splitting a row needs
/// memory.
#[derive(Debug)]
pub struct Parser<'a> {
    /// Rules of the file.
    pub schema: &'a Schema,
    /// Splitter for the file's delimiter.
    pub splitter: Splitter,
    /// Memory for one number.
    pub scratch: String,
}

impl<'a> Parser<'a> {
    /// Makes the tools of one thread.
    pub fn new(schema: &'a Schema) -> Self {
        Self { schema, splitter: Splitter::new(schema.delimiter), scratch: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour";

    fn schema(delimiter: char, missing: &[&str]) -> Schema {
        let missing = missing.iter().map(|&text| text.to_owned()).collect();
        let options = Options { missing, ..Options::default() };
        let header = HEADER.replace(',', &delimiter.to_string());
        Schema::from_header(header.as_bytes(), &options).unwrap()
    }

    fn reading(schema: &Schema, field: &str) -> Reading {
        schema.reading(field.as_bytes(), &mut String::new())
    }

    #[test]
    fn the_header_shows_the_delimiter() {
        for delimiter in [',', ';', '\t'] {
            assert_eq!(schema(delimiter, &[]).delimiter(), delimiter as u8);
            let quoted = format!("\"{}\"", HEADER.replace(',', &format!("\"{delimiter}\"")));
            let found = Schema::from_header(quoted.as_bytes(), &Options::default()).unwrap();
            assert_eq!(found.delimiter(), delimiter as u8);
        }
        // Other delimiters in a name have no effect.
        let header = format!("\"a,b\";{}", HEADER.replace(',', ";"));
        let found = Schema::from_header(header.as_bytes(), &Options::default()).unwrap();
        assert_eq!(found.delimiter(), b';');

        let piped = HEADER.replace(',', "|");
        assert!(Schema::from_header(piped.as_bytes(), &Options::default()).is_err());
        let given = Options { delimiter: Some(b'|'), ..Options::default() };
        assert_eq!(Schema::from_header(piped.as_bytes(), &given).unwrap().delimiter(), b'|');
        assert!(Schema::from_header(HEADER.as_bytes(), &given).is_err());
    }

    #[test]
    fn the_error_of_a_header_is_that_of_the_likeliest_delimiter() {
        let header = HEADER.replace("temp,", "t,").replace(',', ";");
        let error = Schema::from_header(header.as_bytes(), &Options::default()).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with(
                "with ';' as the delimiter: the header has no column 'temp'; its columns are \
                 'origin', 't', 'dewp'"
            ),
            "{error}"
        );
        let error = Schema::from_header(b"a;b\n", &Options::default()).unwrap_err();
        assert!(format!("{error:#}").ends_with("its columns are 'a', 'b'"), "{error:#}");
        let open = Schema::from_header(b"\"origin,temp\n1,2\n", &Options::default()).unwrap_err();
        assert_eq!(open.to_string(), "a quote in the header is never closed");
        // The text begins as a picture does, but its names are those of a table.
        let picture = Schema::from_header(b"BM,origin,humid\n", &Options::default()).unwrap_err();
        assert!(picture.to_string().starts_with("the header has no column 'temp'"), "{picture}");
        let picture = Schema::from_header(b"BM\x01,\"\n", &Options::default()).unwrap_err();
        assert!(picture.to_string().starts_with("this is no CSV, but image/bmp"), "{picture}");
    }

    #[test]
    fn missing_values_are_known_in_any_case_and_others_can_be_named() {
        let plain = schema(',', &[]);
        for text in ["", " ", "NA", "na", "N/A", "n/a", "NaN", "nan", "null", "NULL", " NA "] {
            assert_eq!(reading(&plain, text), Reading::Missing, "{text}");
        }
        for text in ["-999", "-999.0", "none", "-", "inf", "N A"] {
            assert_ne!(reading(&plain, text), Reading::Missing, "{text}");
        }
        let named = schema(',', &["-999", "None", "-"]);
        for text in ["-999", "-999.0", "-9.99e2", "none", "-", "NA", ""] {
            assert_eq!(reading(&named, text), Reading::Missing, "{text}");
        }
        assert_eq!(reading(&named, "-998"), Reading::Value(-998.0));
    }

    #[test]
    fn a_decimal_comma_is_read_unless_commas_delimit_fields() {
        for delimiter in [';', '\t'] {
            let schema = schema(delimiter, &[]);
            for (text, value) in [("3,5", 3.5), ("-0,25", -0.25), ("3.5", 3.5), ("1,5e3", 1500.0)] {
                assert_eq!(reading(&schema, text), Reading::Value(value), "{text}");
            }
            for text in ["1.013,2", "1,013.2", "1,2,3", ",", "NA,"] {
                assert_eq!(reading(&schema, text), Reading::Bad, "{text}");
            }
        }
        assert_eq!(reading(&schema(',', &[]), "3,5"), Reading::Bad);
    }

    #[test]
    fn spaces_around_a_number_or_a_time_do_not_matter() {
        let schema = schema(',', &[]);
        assert_eq!(reading(&schema, " 3.5\t"), Reading::Value(3.5));
        assert_eq!(schema.time(b" 1970-01-01T00:01:00Z "), Ok(60));
        assert_eq!(schema.reading(b"\xff", &mut String::new()), Reading::Bad);
    }
}

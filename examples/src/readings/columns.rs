//! The columns of a file, found by their names in the header.

use anyhow::{Result, bail};

/// The measured dimensions of a station by the names of their columns, in the order of the journal.
pub const DIMENSIONS: [&str; 9] =
    ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"];

/// Index of the wind's direction in [`DIMENSIONS`]. It never raises an alarm: 350 and 10 degrees
/// are neighbours, so a mean and a deviation of directions mean nothing.
pub const WIND_DIRECTION: usize = 3;

const STATION: &str = "origin";
const TIME: &str = "time_hour";

/// The content of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Name of the station.
    Station,
    /// Time in UTC.
    Time,
    /// Reading of the dimension with this index in [`DIMENSIONS`].
    Dimension(usize),
    /// Content that this program does not use, such as the local hour.
    Other,
}

/// The columns of a file, in the file's order.
#[derive(Clone, Debug)]
pub struct Columns {
    all: Vec<Column>,
    station: usize,
    time: usize,
}

impl Columns {
    /// Parses the header. Every needed column must be there exactly once. The order is free, and
    /// other columns are ignored.
    pub fn from_header(header: &str) -> Result<Self> {
        let all: Vec<Column> = header.split(',').map(Self::column).collect();
        let place = |column: Column, name: &str| -> Result<usize> {
            let mut found = (0..all.len()).filter(|&i| all[i] == column);
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(at),
                (None, _) => bail!("the header has no column '{name}'"),
                (_, Some(_)) => bail!("the header has the column '{name}' twice"),
            }
        };
        for (i, name) in DIMENSIONS.iter().enumerate() {
            place(Column::Dimension(i), name)?;
        }
        let (station, time) = (place(Column::Station, STATION)?, place(Column::Time, TIME)?);
        Ok(Self { all, station, time })
    }

    fn column(name: &str) -> Column {
        match name.trim() {
            STATION => Column::Station,
            TIME => Column::Time,
            name => match DIMENSIONS.iter().position(|d| *d == name) {
                Some(i) => Column::Dimension(i),
                None => Column::Other,
            },
        }
    }

    /// Returns all columns in the file's order.
    pub fn all(&self) -> &[Column] {
        &self.all
    }

    /// Returns the fields by which rows are sorted: time and station. Each is absent in a line that
    /// is too short.
    pub fn key_fields<'a>(&self, line: &'a str) -> (Option<&'a str>, Option<&'a str>) {
        let field = |at| line.split(',').nth(at);
        (field(self.time), field(self.station))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "visib,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,note,time_hour,origin";

    #[test]
    fn columns_are_found_in_any_order() {
        let columns = Columns::from_header(HEADER).unwrap();
        assert_eq!(columns.all()[0], Column::Dimension(8));
        assert_eq!(columns.all()[9], Column::Other);
        assert_eq!(columns.key_fields("1,,,,,,,,,,T,S"), (Some("T"), Some("S")));
        assert_eq!(columns.key_fields("1,2"), (None, None));
    }

    #[test]
    fn a_missing_or_doubled_column_is_named() {
        let missing = Columns::from_header(&HEADER.replace("humid", "h")).unwrap_err();
        assert_eq!(missing.to_string(), "the header has no column 'humid'");
        let doubled = Columns::from_header(&HEADER.replace("note", "temp")).unwrap_err();
        assert_eq!(doubled.to_string(), "the header has the column 'temp' twice");
    }
}

//! What the columns of a file mean, found by their names in the header.

use anyhow::{Result, bail};

/// What a station measures, by the names of the columns, in the order in which readings are
/// written.
pub const DIMENSIONS: [&str; 9] =
    ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"];

/// The wind's direction among [`DIMENSIONS`]. It goes in a circle, 350 degrees and 10 degrees are
/// neighbours: a mean and a deviation of it say nothing, so it never raises an alarm.
pub const WIND_DIRECTION: usize = 3;

const STATION: &str = "origin";
const TIME: &str = "time_hour";

/// What one column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The station's name.
    Station,
    /// The time in UTC.
    Time,
    /// A reading, by its place in [`DIMENSIONS`].
    Dimension(usize),
    /// Something that is not needed here, such as the local hour.
    Other,
}

/// The columns of a file, in its order.
#[derive(Clone, Debug)]
pub struct Columns {
    all: Vec<Column>,
    station: usize,
    time: usize,
}

impl Columns {
    /// Reads the header. Each column that is needed must be there, and once; others may be, in any
    /// order.
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

    /// Every column in the file's order.
    pub fn all(&self) -> &[Column] {
        &self.all
    }

    /// The fields of a line that put it in order, time and station, as far as they are there.
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

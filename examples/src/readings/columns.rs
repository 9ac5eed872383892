//! The columns of a file, found by their names in the header.

use anyhow::{Result, bail};

use super::escape;

/// The measured dimensions of a station by the names of their columns, in the order of the journal.
pub const DIMENSIONS: [&str; 9] =
    ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"];

/// Index of the wind's direction in [`DIMENSIONS`]. It never raises an alarm: 350 and 10 degrees
/// are neighbours, so a mean and a deviation of directions mean nothing.
pub const WIND_DIRECTION: usize = 3;

const STATION: &str = "origin";
const TIME: &str = "time_hour";

/// Maximum number of names that an error lists.
const LISTED: usize = 20;

/// The content of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Name of the station.
    Station,
    /// Time.
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
    /// Finds the columns by the names in the header. Every needed column must be there exactly
    /// once. The order is free, case and spaces around a name do not matter, and other columns are
    /// ignored.
    ///
    /// # Errors
    ///
    /// Fails if a needed column is missing or appears twice. If one is missing, the error lists the
    /// names of the columns that the file has.
    pub fn from_names<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Self> {
        let all: Vec<Column> = names.clone().map(Self::column).collect();
        let place = |column: Column, name: &str| -> Result<usize> {
            let mut found = (0..all.len()).filter(|&i| all[i] == column);
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(at),
                (None, _) => {
                    bail!(
                        "the header has no column '{name}'; its columns are {}",
                        listed(names.clone())
                    )
                }
                (_, Some(_)) => bail!("the header has the column '{name}' twice"),
            }
        };
        for (i, name) in DIMENSIONS.iter().enumerate() {
            place(Column::Dimension(i), name)?;
        }
        let (station, time) = (place(Column::Station, STATION)?, place(Column::Time, TIME)?);
        Ok(Self { all, station, time })
    }

    /// Returns how many of these names belong to needed columns.
    pub fn known<'a>(names: impl Iterator<Item = &'a [u8]>) -> usize {
        names.filter(|name| Self::column(name) != Column::Other).count()
    }

    fn column(name: &[u8]) -> Column {
        let name = name.trim_ascii();
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is(STATION) {
            Column::Station
        } else if is(TIME) {
            Column::Time
        } else {
            DIMENSIONS.iter().position(|d| is(d)).map_or(Column::Other, Column::Dimension)
        }
    }

    /// Returns all columns in the file's order.
    pub fn all(&self) -> &[Column] {
        &self.all
    }

    /// Returns the index of the column with the station's name.
    pub fn station(&self) -> usize {
        self.station
    }

    /// Returns the index of the column with the time.
    pub fn time(&self) -> usize {
        self.time
    }
}

/// Returns names for an error message: escaped, and not more than fit a few lines.
fn listed<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> String {
    let shown: Vec<String> = names
        .clone()
        .take(LISTED)
        .map(|name| format!("'{}'", escape::escaped(name.trim_ascii(), 30)))
        .collect();
    let rest = names.count() - shown.len();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "visib,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,note,time_hour,origin";

    fn columns(header: &str) -> Result<Columns> {
        Columns::from_names(header.as_bytes().split(|&byte| byte == b','))
    }

    #[test]
    fn columns_are_found_in_any_order_and_case() {
        for header in [HEADER.to_owned(), HEADER.to_uppercase(), HEADER.replace(',', " ,\t")] {
            let columns = columns(&header).unwrap();
            assert_eq!(columns.all()[0], Column::Dimension(8));
            assert_eq!(columns.all()[9], Column::Other);
            assert_eq!((columns.time(), columns.station()), (10, 11));
        }
    }

    #[test]
    fn a_missing_or_doubled_column_is_named() {
        let missing = columns(&HEADER.replace("humid", "h\x1b[2J")).unwrap_err().to_string();
        assert!(
            missing.starts_with(
                "the header has no column 'humid'; its columns are 'visib', 'temp', 'dewp', \
                 'h\\u{1b}[2J', "
            ),
            "{missing}"
        );
        let doubled = columns(&HEADER.replace("note", "Temp")).unwrap_err();
        assert_eq!(doubled.to_string(), "the header has the column 'temp' twice");
        let many = columns(&"x".repeat(50).split_inclusive('x').collect::<Vec<_>>().join(","));
        let many = many.unwrap_err().to_string();
        assert!(many.ends_with("'x' and 30 more") && many.len() < 200, "{many}");
    }
}

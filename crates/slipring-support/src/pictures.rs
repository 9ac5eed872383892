//! The look of pictures: colours that readers can distinguish, and a style for dark backgrounds.

/// Colours of the series, as red, green and blue values. White numbers are legible on each of them.
/// Each stands out from a white and from a dark background, and colour-blind readers can tell most
/// of them apart, too.
pub const COLOURS: [(u8, u8, u8); 12] = [
    (0, 90, 160),
    (190, 70, 0),
    (0, 120, 90),
    (160, 60, 120),
    (125, 95, 0),
    (80, 85, 95),
    (110, 70, 190),
    (180, 30, 45),
    (0, 125, 165),
    (75, 120, 0),
    (200, 0, 120),
    (115, 100, 90),
];

/// Colours for readers who prefer a dark background, which override the attributes that `plotters`
/// writes. Inserted by hand, because `plotters` knows no style sheets.
pub const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\
    rect[fill=\"#FFFFFF\"] { fill: #15181d }\
    text[fill=\"#000000\"] { fill: #e3e6ea }\
    line[stroke=\"#000000\"], polyline[stroke=\"#000000\"] { stroke: #c9ced6 }\
    }</style>";

/// Inserts the style for dark backgrounds into a picture by `plotters`.
pub fn add_dark_style(svg: &mut String) {
    let end_of_root = svg.find('>').map_or(0, |at| at + 1);
    svg.insert_str(end_of_root, DARK);
}

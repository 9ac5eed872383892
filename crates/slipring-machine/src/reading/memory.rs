//! Reads the sizes of pages.

use super::files::{Files, MachineError, quoted};
use crate::description::parts::{HugePages, Memory};

const TRANSPARENT: &str = "sys/kernel/mm/transparent_hugepage";
const RESERVED: &str = "sys/kernel/mm/hugepages";

pub fn read(files: &Files<'_>) -> Result<Memory, MachineError> {
    let mut huge_pages = Vec::new();
    for name in files.names(RESERVED)? {
        let size = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"));
        let Some(size_kib) = size.and_then(|size| size.parse().ok()) else { continue };
        let count = |what| files.number(&format!("{RESERVED}/{name}/{what}"));
        let reserved = count("nr_hugepages")?.unwrap_or(0);
        let free = count("free_hugepages")?.unwrap_or(0);
        huge_pages.push(HugePages { size_kib, reserved, free });
    }
    huge_pages.sort_by_key(|pages| pages.size_kib);
    let bytes: Option<u64> = files.number(&format!("{TRANSPARENT}/hpage_pmd_size"))?;
    Ok(Memory {
        page_kib: page(files)?,
        transparent_huge_pages: transparent(files)?,
        transparent_huge_page_kib: bytes.map(|bytes| bytes / 1024),
        huge_pages,
    })
}

/// Returns the size of the pages of this process's first mapping. The auxiliary vector also states
/// the size, but not as text.
fn page(files: &Files<'_>) -> Result<Option<u64>, MachineError> {
    const KEY: &str = "KernelPageSize:";
    let path = "proc/self/smaps";
    let text = files.first_lines(path, |line| line.starts_with(KEY))?.unwrap_or_default();
    let Some(size) = text.strip_prefix(KEY) else { return Ok(None) };
    let size = size.split_ascii_whitespace().next().unwrap_or_default();
    files.parse(path, size).map(Some)
}

/// Returns the bracketed mode in a text such as `always [madvise] never`.
fn transparent(files: &Files<'_>) -> Result<Option<String>, MachineError> {
    let path = format!("{TRANSPARENT}/enabled");
    let Some(text) = files.text(&path)? else { return Ok(None) };
    let mode = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match mode {
        Some((mode, _)) => Ok(Some(mode.to_owned())),
        None => Err(files.malformed(&path, format!("{} has no mode in brackets", quoted(&text)))),
    }
}

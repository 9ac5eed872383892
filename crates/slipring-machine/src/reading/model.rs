//! Reads the names of the processor and of the hypervisor.

use super::files::{Files, MachineError};

const PATH: &str = "proc/cpuinfo";

/// Key of the line that lists the processor's flags, among them `hypervisor` on a virtual machine.
const FLAGS: &str = "flags";

/// Returns what this module needs of `line`, a line of the processor's description. Returns `None`
/// if it needs nothing of it.
fn pick(line: &str) -> Option<String> {
    const KEYS: [&str; 6] =
        ["model name", "Model Name", "cpu model", "cpu", "CPU implementer", "CPU part"];
    let (key, value) = field(line)?;
    let is_virtual = || value.split_ascii_whitespace().any(|flag| flag == "hypervisor");
    match key {
        FLAGS => is_virtual().then(|| format!("{FLAGS}\t: hypervisor")),
        key => KEYS.contains(&key).then(|| line.to_owned()),
    }
}

fn field(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    Some((key.trim(), value.trim()))
}

/// Returns the processor's name. If only its cores have names, returns the name of each kind of
/// core.
pub fn processor(files: &Files<'_>) -> Result<Option<String>, MachineError> {
    let text = files.picked(PATH, pick)?.unwrap_or_default();
    let (mut names, mut parts, mut implementer) = (Vec::new(), Vec::new(), "");
    for (key, value) in text.lines().filter_map(field) {
        match key {
            "CPU implementer" => implementer = value,
            "CPU part" => parts.push(part(implementer, value)),
            FLAGS => {}
            _ => names.push(value),
        }
    }
    if let Some(name) = names.iter().find(|name| !name.is_empty()) {
        return Ok(Some((*name).to_owned()));
    }
    Ok(Some(parts.join(" and ")).filter(|name| !name.is_empty()))
}

/// Returns the name of an ARM core from the numbers of its maker and part.
fn part(implementer: &str, part: &str) -> String {
    let name = match (implementer, part) {
        ("0x41", "0xd03") => "Cortex-A53",
        ("0x41", "0xd04") => "Cortex-A35",
        ("0x41", "0xd05") => "Cortex-A55",
        ("0x41", "0xd07") => "Cortex-A57",
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd09") => "Cortex-A73",
        ("0x41", "0xd0a") => "Cortex-A75",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd0d") => "Cortex-A77",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd41") => "Cortex-A78",
        ("0x41", "0xd44") => "Cortex-X1",
        ("0x41", "0xd46") => "Cortex-A510",
        ("0x41", "0xd47") => "Cortex-A710",
        ("0x41", "0xd48") => "Cortex-X2",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd4d") => "Cortex-A715",
        ("0x41", "0xd4e") => "Cortex-X3",
        ("0x41", "0xd4f") => "Neoverse-V2",
        ("0x41", "0xd80") => "Cortex-A520",
        ("0x41", "0xd81") => "Cortex-A720",
        ("0x41", "0xd82") => "Cortex-X4",
        ("0x41", "0xd83") => "Neoverse-V3AE",
        ("0x41", "0xd84") => "Neoverse-V3",
        ("0x41", "0xd8e") => "Neoverse-N3",
        ("0x43", "0x0af") => "ThunderX2",
        ("0x46", "0x001") => "A64FX",
        ("0x48", "0xd01") => "Kunpeng 920",
        ("0x61", "0x022" | "0x024" | "0x028") => "Apple M1 (efficiency)",
        ("0x61", "0x023" | "0x025" | "0x029") => "Apple M1 (performance)",
        ("0xc0", "0xac3") => "Ampere-1",
        ("0xc0", "0xac4") => "Ampere-1a",
        _ => return format!("ARM implementer {implementer} part {part}"),
    };
    name.to_owned()
}

/// Returns the hypervisor's name, or `unknown` if there is a hypervisor whose name cannot be found.
pub fn hypervisor(files: &Files<'_>) -> Result<Option<String>, MachineError> {
    const VENDORS: [(&str, &str); 8] = [
        ("QEMU", "QEMU"),
        ("VMware", "VMware"),
        ("innotek", "VirtualBox"),
        ("Xen", "Xen"),
        ("Parallels", "Parallels"),
        ("Amazon EC2", "Amazon EC2"),
        ("Google", "Google"),
        ("Microsoft", "Hyper-V"),
    ];
    if let Some(name) = files.text("sys/hypervisor/type")?.filter(|name| !name.is_empty()) {
        return Ok(Some(name));
    }
    let vendor = files.text("sys/class/dmi/id/sys_vendor")?.unwrap_or_default();
    let known = VENDORS.iter().find(|(begin, _)| vendor.starts_with(begin));
    // The last three makers also sell machines without a hypervisor, so their names are no proof of
    // one.
    if let Some((_, name)) = VENDORS[..5].iter().find(|(begin, _)| vendor.starts_with(begin)) {
        return Ok(Some((*name).to_owned()));
    }
    if has_hypervisor_flag(files)? {
        return Ok(Some(known.map_or("unknown", |(_, name)| name).to_owned()));
    }
    Ok(None)
}

/// Returns whether the processor's flags say that there is a hypervisor; only x86 has such a flag.
fn has_hypervisor_flag(files: &Files<'_>) -> Result<bool, MachineError> {
    let text = files.picked(PATH, pick)?.unwrap_or_default();
    Ok(text.lines().filter_map(field).any(|(key, _)| key == FLAGS))
}

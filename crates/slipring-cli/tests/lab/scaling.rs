//! `slipring lab scaling` as a user runs it. The tests judge no time and no rate.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

fn scaling(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring"))
        .args(["lab", "scaling"])
        .args(args)
        .output()
        .unwrap()
}

/// Runs the program with a record, and returns the experiment's results and the printed tables.
fn measured(args: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("scaling.json");
    let output = scaling(&[args, &["--json", json.to_str().unwrap()]].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "only a terminal gets a progress bar");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(record["experiments"].as_array().unwrap().len(), 1);
    (record["experiments"][0].clone(), String::from_utf8(output.stdout).unwrap())
}

/// Returns contender, sorts and consumers of a series.
fn case(series: &Value) -> (String, u64, u64) {
    let point = series["point"].as_array().unwrap();
    let at = |place: usize, name: &str| {
        assert_eq!(point[place][0], name);
        point[place][1].as_u64().unwrap()
    };
    (series["contender"].as_str().unwrap().to_owned(), at(0, "sorts"), at(1, "consumers"))
}

#[test]
fn a_smoke_run_has_every_contender_at_every_point() {
    let (results, tables) = measured(&["--smoke"]);
    assert_eq!(results["experiment"], "scaling");
    assert_eq!(results["rounds"], 2);
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    let everywhere =
        ["sequential", "blocking queue", "ring with partitioned handlers", "slipring pool"];
    let mut expected = BTreeSet::new();
    for sorts in [1, 15, 300] {
        for consumers in 1..=11 {
            expected.extend(everywhere.map(|name| (name.to_owned(), sorts, consumers)));
            if consumers + 1 > cores {
                let name = "slipring pool on shared threads".to_owned();
                expected.insert((name, sorts, consumers));
            }
        }
    }
    let series = results["series"].as_array().unwrap();
    let found: BTreeSet<_> = series.iter().map(case).collect();
    assert_eq!(found, expected);
    assert_eq!(series.len(), expected.len());
    for series in series {
        let (name, sorts, consumers) = case(series);
        let at = format!("{name}, {sorts} sorts, {consumers} consumers");
        let values = |metric: &str| -> Vec<f64> {
            let values = series["metrics"][metric]["values"].as_array();
            values.into_iter().flatten().map(|value| value.as_f64().unwrap()).collect()
        };
        for metric in ["wall time", "time"] {
            let values = values(metric);
            assert_eq!(values.len(), 2, "{at}: {metric}");
            assert!(values.iter().all(|value| *value > 0.0), "{at}: {metric}");
        }
        if cfg!(target_os = "linux") {
            let cpu = values("CPU");
            assert_eq!(cpu.len(), 2, "{at}");
            assert!(cpu.iter().all(|share| (0.0..=cores as f64 + 0.1).contains(share)), "{at}");
        }
        let cpus = series["cpus"].as_array().unwrap();
        let distinct: BTreeSet<u64> = cpus.iter().map(|cpu| cpu.as_u64().unwrap()).collect();
        assert_eq!(distinct.len(), cpus.len(), "{at}: two threads are on one CPU");
        let threads = series["threads"].as_u64().unwrap() as usize;
        assert!(cpus.is_empty() || cpus.len() == threads, "{at}");
        assert!(tables.contains(&name), "no table names {name}");
    }
    // The tables show figures 3 to 8 of the study.
    for figure in ["Time by consumers", "CPU by consumers"] {
        for sorts in [1, 15, 300] {
            assert!(tables.contains(&format!("{figure}: sorts {sorts}\n")), "{figure}, {sorts}");
        }
    }
    assert!(tables.contains("On this machine, the pool leads one thread"), "{tables}");
    let notes = results["notes"].to_string();
    assert!(notes.contains("40 million events"), "{notes}");
}

#[test]
fn only_the_named_contenders_are_measured() {
    let (results, tables) = measured(&["--smoke", "--only", "blocking queue"]);
    let series = results["series"].as_array().unwrap();
    assert_eq!(series.len(), 33);
    assert!(series.iter().all(|series| series["contender"] == "blocking queue"));
    assert!(tables.contains("were not both measured"), "{tables}");
}

#[test]
fn wrong_options_are_refused_before_the_measurement() {
    let refused = |args: &[&str]| {
        let output = scaling(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let message = refused(&["--full", "--only", "disruptor"]);
    assert!(message.contains("disruptor") && message.contains("blocking queue"), "{message}");
    let message = refused(&["--smoke", "--full"]);
    assert!(message.contains("--smoke") && message.contains("--full"), "{message}");
    let message = refused(&["--full", "--json", "/missing/folder/file"]);
    assert!(message.contains("cannot write to"), "{message}");
}

/// Simulates a small machine, and returns the printed text.
fn simulated(args: &[&str]) -> String {
    let output = scaling(&[&["--smoke", "--rounds", "1", "--simulate", "2x2"], args].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_simulations_print_the_same_text_which_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (path("simulated.json"), path("page.html"));
    let text = simulated(&["--json", &json]);
    assert_eq!(text, simulated(&[]));
    assert!(text.lines().next().unwrap().contains("SIMULATED"), "{text}");
    assert!(text.contains("changed line from another socket 110 ns"), "{text}");
    assert!(text.contains("Simulated: of 12 statements"), "{text}");
    assert!(text.contains("- 1 sort: the queue is slower than one thread"), "{text}");
    for table in ["transfers", "read-modify-writes", "relative time", "busy cores"] {
        for sorts in [1, 15, 300] {
            let title = format!("\nSimulated: {table} by consumers: sorts {sorts}\n");
            assert!(text.contains(&title), "{title}");
        }
    }
    // A part of the contenders has the same counts as it has among all.
    let alone = simulated(&["--only", "blocking queue"]);
    let row = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("| blocking queue, placement packed"));
        row.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row(&alone), row(&text));

    let record: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(record["simulated"]["name"], "server 2x2");
    let results = &record["experiments"][0];
    assert_eq!(results["experiment"], "scaling-simulated");
    // Sorts, placements, contenders, consumers.
    assert_eq!(results["series"].as_array().unwrap().len(), 3 * 2 * 3 * 3);
    let report = Command::new(env!("CARGO_BIN_EXE_slipring"))
        .args(["lab", "report", &json, "-o", &page])
        .status();
    assert!(report.unwrap().success());
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("Simulated machine") && page.contains("none is a speed"));
    for start in ["<title id=\"", "<caption"] {
        let texts = page.split(start).skip(1).filter_map(|rest| rest.split(['>', '<']).nth(1));
        let texts: Vec<&str> = texts.collect();
        assert!(texts.len() >= 18, "{texts:?}");
        assert!(texts.iter().all(|text| text.starts_with("Simulated: ")), "{texts:?}");
    }
    assert!(!page.contains("Noise floor") && !page.contains("Reading the clock"));
}

#[test]
fn a_topology_that_is_none_is_refused() {
    for (topology, words) in [
        ("0x6", ["has no cores", "such as 2x6"]),
        ("7", ["`7` is not a topology", "such as 2x6"]),
        ("2x", ["`2x` is not a topology", "such as 2x6"]),
        ("64x64", ["more cores than the 64", "such as 2x6"]),
        ("1x1", ["a single core", "such as 1x2"]),
    ] {
        let output = scaling(&["--smoke", "--simulate", topology]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty() && message.lines().count() == 1, "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    for (args, words) in [
        (["--simulate", "2x6", "--consumers", "12"], ["need 13 cores", "at most 11 consumers"]),
        (["--simulate", "2x6", "--consumers", "0"], ["--consumers", "1..=255"]),
        (["--rounds", "1", "--consumers", "3"], ["required", "--simulate"]),
    ] {
        let output = scaling(&args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

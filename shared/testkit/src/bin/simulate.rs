//! `simulate`: runs the federation through many seeds, each twice, and reports what went wrong.
//!
//! Each shard is a process of its own, because a run needs a process for itself.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the result of the program is what it prints"
)]

use std::num::NonZero;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use mimalloc::MiMalloc;
use roadstead_core::dispatch::Bug;
use roadstead_testkit::sim::script::Script;
use roadstead_testkit::sim::{Keep, Outcome, Player, bank, shrink};
use serde_json::{Value, json};

// Why: a run mostly allocates.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Plays manager, workers and clusters in one thread, with everything that goes wrong decided by the seed.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to play.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play only this seed and tell what happens.
    #[arg(long)]
    replay: Option<u64>,
    /// With --replay: only these troubles, by number.
    #[arg(long, value_delimiter = ',', num_args = 0..)]
    faults: Option<Vec<usize>>,
    /// With --replay: print every API call, and what the processes log at this level.
    #[arg(long)]
    trace: Option<String>,
    /// Processes to share the seeds; default: one per core.
    #[arg(long)]
    shards: Option<u64>,
    /// Play each seed once, without comparing traces.
    #[arg(long)]
    once: bool,
    /// Play only one seed in so many twice.
    #[arg(long, default_value_t = 1)]
    twice_every: u64,
    /// Plant each bug of the bug bank and look for it, within --bank-seeds seeds.
    #[arg(long)]
    bug_bank: bool,
    /// With --bug-bank: only these bugs; with --replay: plant this one.
    #[arg(long, value_delimiter = ',')]
    bugs: Vec<String>,
    /// With --bug-bank: how many seeds may pass until a bug is found.
    #[arg(long, default_value_t = bank::SEEDS_MAX)]
    bank_seeds: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The results of a number of seeds.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    trace_mismatches: u64,
    events: u64,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.replay {
        Some(seed) => replay(&args, seed),
        None if args.bug_bank => plant(&args),
        None => many(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("simulate: {error}");
        ExitCode::from(2)
    })
}

fn many(args: &Args) -> Result<ExitCode, String> {
    let started = Instant::now();
    let shards = args.shards.unwrap_or_else(|| u64::try_from(cores()).unwrap_or(1));
    let tally = if shards <= 1 {
        play(args)?
    } else {
        share(args, shards)?
    };
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate, rounded"
    )]
    let per_minute = (tally.seeds as f64 / minutes).round() as u64;
    let good = tally.failures.is_empty() && tally.trace_mismatches == 0;
    if args.json {
        let result = json!({
            "seeds": tally.seeds, "violations": tally.failures.len(), "trace_mismatches": tally.trace_mismatches,
            "seeds_per_minute": per_minute, "events": tally.events, "failures": tally.failures,
        });
        println!("{result}");
    } else {
        for failure in &tally.failures {
            println!("{failure}");
        }
        println!(
            "{} seeds, {} violations, {} trace mismatches, {} events, {per_minute} seeds per minute",
            tally.seeds,
            tally.failures.len(),
            tally.trace_mismatches,
            tally.events,
        );
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Plays the seeds in this process, one after the other.
fn play(args: &Args) -> Result<Tally, String> {
    let player = Player::new()?;
    let mut tally = Tally::default();
    for seed in args.from..args.from.saturating_add(args.seeds) {
        let script = Script::from_seed(seed);
        let outcome = player.play(&script, Keep::Hash)?;
        tally.seeds += 1;
        tally.events += outcome.events;
        let twice = !args.once && seed.is_multiple_of(args.twice_every.max(1));
        if twice && !player.repeats(&script, &outcome)? {
            tally.trace_mismatches += 1;
            eprintln!("seed {seed}: two runs differ");
        }
        if !outcome.violations.is_empty() {
            let failure = describe(&player, &script, &outcome)?;
            eprintln!("{failure}");
            tally.failures.push(failure);
        }
    }
    Ok(tally)
}

/// One line for one failure: what broke, and how to replay it.
fn describe(player: &Player, script: &Script, outcome: &Outcome) -> Result<String, String> {
    let (faults, least) = shrink(player, script, outcome)?;
    let numbers: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let what = least.violations.first().map_or("", |line| line.as_str());
    let what: String = what.replace('\n', " ").chars().take(600).collect();
    Ok(format!(
        "seed {} needs {} of {} troubles: {what}; replay: cargo run --release --bin simulate -- --replay {} --faults {}",
        script.seed,
        faults.len(),
        script.faults.len(),
        script.seed,
        numbers.join(","),
    ))
}

/// The results of this program with each of these lists of arguments, all at once.
fn results(runs: Vec<Vec<String>>) -> Result<Vec<Value>, String> {
    let program = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let mut running = Vec::new();
    for arguments in runs {
        let mut command = Command::new(&program);
        command.args(["--shards", "1", "--json"]).args(arguments);
        let child = command.stdout(Stdio::piped()).spawn();
        running.push(child.map_err(|error| format!("starting a shard: {error}"))?);
    }
    let result = |child: Child| {
        let output = child
            .wait_with_output()
            .map_err(|error| format!("waiting for a shard: {error}"))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("a shard ended with {}: {error}", output.status))
    };
    running.into_iter().map(result).collect()
}

/// Shares the seeds among processes of this program.
fn share(args: &Args, shards: u64) -> Result<Tally, String> {
    let (mut from, mut left) = (args.from, args.seeds);
    let mut runs = Vec::new();
    for shard in 0..shards {
        let seeds = left / (shards - shard);
        let mut run = vec![
            format!("--from={from}"),
            format!("--seeds={seeds}"),
            format!("--twice-every={}", args.twice_every),
        ];
        run.extend(args.once.then(|| "--once".to_owned()));
        runs.push(run);
        from += seeds;
        left -= seeds;
    }
    let mut tally = Tally::default();
    for result in results(runs)? {
        let number = |field: &str| result[field].as_u64().unwrap_or_default();
        tally.seeds += number("seeds");
        tally.trace_mismatches += number("trace_mismatches");
        tally.events += number("events");
        let failures = result["failures"].as_array().into_iter().flatten();
        tally
            .failures
            .extend(failures.filter_map(Value::as_str).map(str::to_owned));
    }
    Ok(tally)
}

/// The requested bugs; all if none is requested.
fn asked_for(args: &Args) -> Result<Vec<Bug>, String> {
    if args.bugs.is_empty() {
        return Ok(Bug::ALL.to_vec());
    }
    let named = |name: &String| {
        bank::bug_of(name).ok_or_else(|| format!("there is no bug {name}; there are {:?}", Bug::ALL))
    };
    args.bugs.iter().map(named).collect()
}

/// Looks for each bug of the bank; it is a failure not to find one.
fn plant(args: &Args) -> Result<ExitCode, String> {
    let bugs = asked_for(args)?;
    let shards = args
        .shards
        .map_or_else(cores, |shards| usize::try_from(shards).unwrap_or(1));
    let catches = if shards <= 1 {
        let player = Player::new()?;
        let mut catches = Vec::new();
        for bug in &bugs {
            let caught = bank::hunt(&player, *bug, args.from, args.bank_seeds)?;
            let (seed, violation) = caught.found.clone().unzip();
            catches.push(json!({
                "bug": format!("{bug:?}"), "source": bug.source(), "seeds": caught.tried, "seed": seed,
                "violation": violation.map(|line| line.chars().take(300).collect::<String>()),
            }));
            eprintln!("{}", told(catches.last().unwrap_or(&Value::Null)));
        }
        catches
    } else {
        share_bugs(args, &bugs, shards)?
    };
    let found = catches.iter().filter(|one| !one["seed"].is_null()).count();
    if args.json {
        let result = json!({"bugs_planted": bugs.len(), "bugs_found": found, "bugs": catches});
        println!("{result}");
    } else {
        for one in &catches {
            println!("{}", told(one));
        }
        println!("bugs_found {found} / bugs_planted {}", bugs.len());
    }
    Ok(if found == bugs.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn told(catch: &Value) -> String {
    let text = |field: &str| catch[field].as_str().unwrap_or("").replace('\n', " ");
    let (bug, source, seeds) = (text("bug"), text("source"), &catch["seeds"]);
    match catch["seed"].as_u64() {
        Some(seed) => format!("{bug} ({source}): found by seed {seed}: {}", text("violation")),
        None => format!("{bug} ({source}): NOT found in {seeds} seeds"),
    }
}

/// Shares the bugs among processes of this program.
fn share_bugs(args: &Args, bugs: &[Bug], shards: usize) -> Result<Vec<Value>, String> {
    let run = |shard| {
        let some = bugs.iter().skip(shard).step_by(shards);
        let some: Vec<String> = some.map(|bug| format!("{bug:?}")).collect();
        vec![
            "--bug-bank".to_owned(),
            format!("--bugs={}", some.join(",")),
            format!("--from={}", args.from),
            format!("--bank-seeds={}", args.bank_seeds),
        ]
    };
    let results = results((0..shards.min(bugs.len())).map(run).collect())?;
    let catches = results
        .iter()
        .flat_map(|result| result["bugs"].as_array().into_iter().flatten());
    Ok(catches.cloned().collect())
}

/// Plays one seed and tells about it.
fn replay(args: &Args, seed: u64) -> Result<ExitCode, String> {
    if let Some(level) = &args.trace {
        tracing_subscriber::fmt()
            .with_env_filter(level)
            .without_time()
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .init();
    }
    let mut script = Script::from_seed(seed);
    if let Some(keep) = &args.faults {
        script = script.with_faults(keep);
    }
    script.bug = args
        .bugs
        .first()
        .map(|_| asked_for(args))
        .transpose()?
        .map(|bugs| bugs[0]);
    println!("{script:#?}");
    let player = Player::new()?;
    let outcome = player.play(&script, Keep::Lines)?;
    if args.trace.is_some() {
        for line in &outcome.trace {
            println!("{line}");
        }
    }
    let again = player.play(&script, Keep::Lines)?;
    let differs = outcome
        .trace
        .iter()
        .zip(&again.trace)
        .find(|(one, other)| one != other);
    if let Some((one, other)) = differs {
        println!("two runs differ first here:\n  {one}\n  {other}");
    }
    for violation in &outcome.violations {
        println!("{violation}");
    }
    println!(
        "seed {seed}: trace {:016x}, {} events in {} s, {} violations",
        outcome.hash,
        outcome.events,
        outcome.took.as_secs(),
        outcome.violations.len()
    );
    let good = outcome.violations.is_empty() && again.hash == outcome.hash;
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

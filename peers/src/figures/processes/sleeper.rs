//! Before a stream begins, a tap's sleeping reader is killed. Its position remains, and the count
//! of sleepers still includes it. The figure shows what that costs the other parties.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{Wait, handles::StartAt};
use slipring_machine::pin;

use super::ends::meet;
use super::links::ours;
use super::mapping::Control;
use super::run::{Folder, Roles};
use super::task::{Fate, Role, RoleResult, Task, Work};
use crate::contenders::{StreamSpec, produce};
use crate::measure::Values;
use crate::work::Check;

/// Time that the tap's reader waits before it leaves or is killed.
const ASLEEP: Duration = Duration::from_millis(10);

/// Runs the roles, and starts the stream when the tap's reader has left or is dead.
pub fn run(task: &Task, folder: &Folder) -> Result<Values, String> {
    let Work::Sleeper { fate, .. } = task.work else { return Err("no sleeper".into()) };
    let control = Control::open(folder.path()).map_err(|error| error.to_string())?;
    ours::make_tapped(task).map_err(|error| error.to_string())?;
    let mut roles = Roles::start(task, &[Role::Reader, Role::Writer, Role::Sleeper])?;
    roles.until("all were there", || control.waits().load(Acquire) == 1)?;
    let killed: &[Role] = match fate {
        Fate::Killed => {
            thread::sleep(ASLEEP);
            roles.kill(Role::Sleeper).map_err(|error| error.to_string())?;
            roles.await_death(Role::Sleeper)?;
            &[Role::Sleeper]
        }
        Fate::Leaves => {
            roles.until("the sleeper had left", || control.left().load(Acquire) == 1)?;
            &[]
        }
    };
    control.begin().store(1, Release);
    roles.finish(killed)
}

/// Plays a role.
pub fn play(task: &Task) -> RoleResult<Values> {
    let Work::Sleeper { spec, fate } = task.work else { return Err("no sleeper".into()) };
    let control = &Control::open(&task.folder)?;
    match task.role {
        Role::Writer => {
            pin(0);
            write(task, spec, control)
        }
        Role::Reader => {
            pin(1);
            read(task, spec, control)
        }
        _ => sleep(task, fate, control),
    }
}

fn write(task: &Task, spec: StreamSpec, control: &Control) -> RoleResult<Values> {
    let mut tx = ours::attach::<u64>(task, "there", Wait::BusySpin)?.producer()?;
    meet(control, 3);
    while control.begin().load(Acquire) == 0 {
        thread::yield_now();
    }
    let begin = Instant::now();
    produce(spec, |number, _| {
        tx.publish(|slot| *slot = number).expect("the ring is open");
    });
    drop(tx);
    while control.done().load(Acquire) == 0 {
        std::hint::spin_loop();
    }
    // The time includes the first lap. The dead reader's position is at the beginning of that lap.
    Ok(vec![("ns", begin.elapsed().as_nanos() as f64 / spec.all() as f64)])
}

fn read(task: &Task, spec: StreamSpec, control: &Control) -> RoleResult<Values> {
    let mut rx = ours::attach::<u64>(task, "there", Wait::BusySpin)?.reader(ours::STAGE)?;
    meet(control, 3);
    let mut check = Check::default();
    rx.for_each(|event, _| check.see(event))?;
    control.done().store(1, Release);
    check.finish(spec.all());
    Ok(Values::new())
}

fn sleep(task: &Task, fate: Fate, control: &Control) -> RoleResult<Values> {
    let attached = ours::attach::<u64>(task, "there", Wait::Blocking)?;
    let mut rx = attached.subscribe(ours::TAP, StartAt::Now)?;
    meet(control, 3);
    control.waits().store(1, Release);
    match fate {
        Fate::Killed => return Err(format!("an end before the kill: {:?}", rx.batch(1)).into()),
        Fate::Leaves => {
            if rx.batch_by(1, Instant::now() + ASLEEP).is_ok() {
                return Err("an event too early".into());
            }
        }
    }
    drop(rx);
    control.left().store(1, Release);
    // If this process ended before the stream, the measuring process would see that as a failure.
    while control.begin().load(Acquire) == 0 {
        thread::sleep(Duration::from_micros(100));
    }
    Ok(Values::new())
}

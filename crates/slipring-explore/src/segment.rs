//! Segments as plain data: a ring that virtual processes share, and these processes.
//!
//! - I1: A process that dies is started again, and goes on where its last life stopped, so each
//!   program ends.

use serde::{Deserialize, Serialize};
use slipring::segment::OnDeath;
use slipring_coherence::Dice;

use crate::content::Content;
use crate::plan::{
    Answer, By, Drive, Fate, Fault, Front, Kind, Quirk, RingPlan, Room, Run, StagePlan, Verb,
    Waits, drain,
};
use crate::shape::Scale;

/// A ring that processes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentPlan {
    /// The kind of its events.
    #[serde(default, skip_serializing_if = "is_events")]
    pub content: Content,
    /// The ring. Its stages' drives belong to processes of their own, one for each handle.
    pub ring: RingPlan,
    /// The effect of the death of each stage's process.
    pub on_death: Vec<Death>,
    /// The effect of the death of the producers' processes.
    pub producer_on_death: Death,
    /// The actions of each producer's process.
    pub producers: Vec<Vec<Verb>>,
    /// The processes that join taps, by the taps' numbers.
    pub subscribers: Vec<(usize, Drive)>,
    /// Two handles of different stages, each as its stage and its number there, that belong to one
    /// process. It polls them in turn, or by a selector if one of them is driven so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<[(usize, usize); 2]>,
    /// Microseconds after which a process comes again whose death is told. Those that find nothing
    /// pause meanwhile. 0: it comes at once.
    #[serde(default)]
    pub absent: u64,
    /// How often a process that has no part looks at the positions and counts; 0: there is none.
    #[serde(default)]
    pub looks: u64,
    /// How often an onlooker copies the events, and looks at the words of all positions; 0: there
    /// is none.
    #[serde(default)]
    pub copies: u64,
}

fn is_events(content: &Content) -> bool {
    *content == Content::Events
}

/// The effect of a process's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    Wait,
    Tell,
    Fail,
    /// The ring closes, if its last producer dies.
    Close,
}

impl Death {
    /// The library's effect of this name.
    pub fn effect(self) -> OnDeath {
        match self {
            Death::Wait => OnDeath::Wait,
            Death::Tell => OnDeath::Tell,
            Death::Fail => OnDeath::Fail,
            Death::Close => OnDeath::Close,
        }
    }
}

/// Returns a random segment with some content.
pub fn random(dice: &mut Dice, scale: Scale, content: Content) -> SegmentPlan {
    let mut capacity = match content.has_lengths() {
        true => dice.pick(&[1, 2, 4, 4, 8, 16]),
        false => dice.pick(&[1, 2, 2, 4, 4, 8]),
    };
    let death = |dice: &mut Dice| dice.pick(&[Death::Wait, Death::Wait, Death::Tell, Death::Fail]);
    let mut stages = Vec::new();
    let kinds: &[Kind] = match dice.below(8) {
        // Deaths meet more often where all processes do the same.
        0 if !content.has_lengths() => &[Kind::PoolReader, Kind::PoolWriter],
        1 => &[Kind::Tap, Kind::Reader],
        2 if !content.has_lengths() => &[Kind::Writer, Kind::ShardWriter],
        // Two that sleep in the same queue.
        3 => &[Kind::Reader],
        _ => content.kinds(),
    };
    let count = match kinds.len() {
        1 => 2,
        2 => 1,
        _ => scale.stages(dice).min(3),
    };
    if matches!(kinds, [Kind::PoolReader, Kind::PoolWriter]) && dice.one_in(4) {
        // Workers take several events at once if the ring has eight slots for each.
        capacity = 16;
    } else if matches!(kinds, [Kind::Reader]) {
        // In a ring that is soon full, no later event wakes a sleeper.
        capacity = dice.pick(&[1, 2, 2, 4]);
    }
    for number in 0..count {
        let kind = dice.pick(kinds);
        let first = stages.iter().all(|stage: &StagePlan| stage.kind != Kind::Tap);
        let kind = if kind == Kind::Tap && !first { Kind::Reader } else { kind };
        let handles = match kind {
            Kind::Reader | Kind::Writer => 1,
            Kind::Tap => 0,
            _ if count == 1 => 2.min(capacity) + dice.below(2).min(capacity as u64 / 4) as usize,
            _ => scale.handles(dice, capacity),
        };
        stages.push(StagePlan {
            kind,
            room: if kind == Kind::Tap { 1 + dice.below(2) as usize } else { 0 },
            after: (0..number).filter(|_| dice.one_in(3)).collect(),
            wait: None,
            on_fault: Fault::Stop,
            marks: false,
            on: None,
            idles: None,
            mirror: 0,
            drives: (0..handles).map(|_| drive(dice, capacity)).collect(),
        });
    }
    if stages.iter().all(|stage| stage.kind == Kind::Tap) {
        stages.push(StagePlan::reader(drive(dice, capacity)));
    }
    let producers = 1 + dice.below(3);
    let mut ring = RingPlan {
        capacity,
        first: dice.pick(&[0, 0, u64::MAX - 10, (1 << 48) - 6]),
        shared: producers > 1,
        contiguous: false,
        wait: dice.pick(&[Waits::Blocking, Waits::Adaptive, Waits::Park, Waits::BusySpin]),
        front: Front::Handles,
        run: Run::Join,
        deadline: None,
        cursor: false,
        reversed: false,
        stages,
    };
    ring.repair();
    let drives = ring.stages.iter_mut().flat_map(|stage| &mut stage.drives);
    drives.for_each(|drive| content.fit_drive(drive));
    let on_death: Vec<Death> = ring.stages.iter().map(|_| death(dice)).collect();
    let producer_on_death = if dice.one_in(4) { Death::Close } else { death(dice) };
    // A graph that a death has ended handles no more events.
    let ends = |death: &Death| matches!(death, Death::Fail | Death::Close);
    let stays = !on_death.iter().chain([&producer_on_death]).any(ends);
    let verbs = |dice: &mut Dice| {
        let verbs = (0..scale.verbs(dice)).map(|_| verb(dice, capacity, scale));
        let mut verbs: Vec<Verb> = verbs.collect();
        if stays && dice.one_in(3) {
            drain(&mut verbs);
        } else if producers > 1 && dice.one_in(4) {
            verbs.push(Verb::CloseAll);
        }
        content.fit_verbs(&mut verbs);
        verbs
    };
    let taps: Vec<usize> =
        (0..ring.stages.len()).filter(|&stage| ring.stages[stage].kind == Kind::Tap).collect();
    let together = together(dice, &ring);
    let tells = on_death.iter().chain([&producer_on_death]).any(|death| *death == Death::Tell);
    let absent = tells && ring.wait != Waits::BusySpin && dice.one_in(4);
    SegmentPlan {
        together,
        absent: if absent { 20_000 } else { 0 },
        on_death,
        producer_on_death,
        producers: (0..producers).map(|_| verbs(dice)).collect(),
        subscribers: subscribers(dice, &taps, capacity, &content),
        looks: if dice.one_in(3) { 1 + dice.below(8) } else { 0 },
        // An onlooker copies no messages.
        copies: if dice.one_in(5) && !content.has_lengths() { 1 + dice.below(6) } else { 0 },
        content,
        ring,
    }
}

/// Returns two handles of different stages, for one process.
fn together(dice: &mut Dice, ring: &RingPlan) -> Option<[(usize, usize); 2]> {
    let handles = |stage: usize| (0..ring.stages[stage].drives.len()).map(move |it| (stage, it));
    let all: Vec<(usize, usize)> = (0..ring.stages.len()).flat_map(handles).collect();
    let [one, other] = [(); 2].map(|()| dice.pick(&all));
    (one.0 != other.0 && dice.one_in(2)).then_some([one, other])
}

fn subscribers(
    dice: &mut Dice,
    taps: &[usize],
    capacity: usize,
    content: &Content,
) -> Vec<(usize, Drive)> {
    let mut all = Vec::new();
    for &tap in taps {
        for _ in 0..1 + dice.below(2) {
            let quirk = dice.one_in(2).then(|| (1 + dice.below(5), Quirk::Leave));
            let mut drive = Drive { quirk, ..drive(dice, capacity) };
            content.fit_drive(&mut drive);
            all.push((tap, drive));
        }
    }
    all
}

fn drive(dice: &mut Dice, capacity: usize) -> Drive {
    let by = match dice.below(9) {
        0..2 => By::ForEach,
        2 => By::Poll,
        3 => By::Batch,
        4 => By::Try,
        5 => By::Deadline(dice.below(100)),
        6 => By::Raw,
        7 => By::Select,
        _ => By::Task(dice.pick(&[0, 1, 3])),
    };
    let quirk = dice.one_in(4).then(|| {
        let quirks = [Quirk::DropBatch, Quirk::ReleaseFront, Quirk::Leave, Quirk::PassOver];
        (1 + dice.below(5), dice.pick(&quirks))
    });
    Drive { by, max: 1 + dice.below(2 * capacity as u64) as usize, quirk }
}

fn verb(dice: &mut Dice, capacity: usize, scale: Scale) -> Verb {
    let some = |dice: &mut Dice| 1 + dice.below(scale.events);
    let len = |dice: &mut Dice| 1 + dice.below(capacity as u64) as usize;
    match dice.below(15) {
        0..3 => Verb::Publish(some(dice)),
        3..5 => Verb::Try(some(dice)),
        5 => Verb::By(dice.below(100)),
        6 => Verb::All(some(dice)),
        7 => Verb::Batches(len(dice), some(dice)),
        8..10 => {
            let fates = [Fate::Publish, Fate::Publish, Fate::Drop, Fate::Forget];
            Verb::Claim(len(dice), dice.pick(&fates))
        }
        10 => match dice.one_in(2) {
            true => Verb::Insist(some(dice)),
            false => Verb::OrDrop(some(dice)),
        },
        11 => Verb::Conflate(1 + dice.below(3) as usize, some(dice)),
        12 => Verb::When(some(dice), dice.pick(&[Room::Remaining, Room::Select(0)])),
        13 => Verb::Ask(1 + dice.below(2), dice.pick(&[Answer::Wait, Answer::Try])),
        _ => Verb::Task(some(dice), dice.pick(&[0, 0, 1])),
    }
}

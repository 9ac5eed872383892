//! Functions of a chain that declare taps and fan-outs; the stages inside a fan-out run in
//! parallel.

use super::declare::Chain;
use super::scope::{Branch, FanOut, sealed};
use crate::live::tap::Tap;
use crate::ring::slots::Layout;
use crate::ring::spec::{Access, Delivery};

impl<'env, E: Send + 'env, L: Layout, P: sealed::ChainScope> Chain<'env, E, L, P> {
    /// Adds stages that run in parallel: each of the stages sees every event, and none waits for
    /// the others.
    ///
    /// Stages inside a fan-out may only read; a stage that updates events does not compile there.
    /// The stage declared after the fan-out comes after all stages inside. Fan-outs nest. An option
    /// of a stage stands inside, behind its stage; behind the fan-out, it is an error of the build.
    ///
    /// ```
    /// let (mut count, mut sum) = (0, 0);
    /// slipring::ring(64, || 0u64)
    ///     .fan_out(|side| {
    ///         side.read("count", |_, _| count += 1).read("sum", |value, _| sum += value)
    ///     })
    ///     .update("clear", |value, _| *value = 0) // comes after both
    ///     .feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!((count, sum), (3, 6));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn fan_out(
        mut self,
        declare: impl FnOnce(Chain<'env, E, L, FanOut>) -> Chain<'env, E, L, FanOut>,
    ) -> Self {
        let Chain { declared, ends, .. } =
            Chain::nested(self.declared, &self.after, "a fan-out", declare);
        self.declared = declared;
        if P::SIDE_BY_SIDE {
            self.ends.extend(ends);
        } else if !ends.is_empty() {
            self.after = ends;
        }
        self
    }

    /// Adds a tap: a place where readers join and leave while the chain runs. See [`Tap`].
    ///
    /// Example: [`Tap`].
    ///
    /// The readers at the tap see the changes that earlier stages made to an event. The producer,
    /// and updating stages after the tap, wait for these readers; a stage after the tap that only
    /// reads does not.
    #[doc(alias = "subscribe")]
    pub fn tap(self, tap: &Tap<E, L>) -> Self
    where
        E: Sync + 'env,
    {
        let specs = self.declared.stages.specs();
        let taps = specs.iter().filter(|spec| matches!(spec.delivery, Delivery::Tap(_))).count();
        let name = match tap.name() {
            Some(name) => name.to_owned(),
            None if taps == 0 => "tap".to_owned(),
            None => format!("tap-{}", taps + 1),
        };
        let tap = tap.clone();
        self.declare(&name, Access::Read, tap.delivery(), move |core, stage, _| {
            tap.bind(core, stage).map(|()| Vec::new())
        })
    }
}

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L, FanOut> {
    /// Adds several stages one after the other, as one branch of this fan-out.
    ///
    /// ```
    /// let mut order = Vec::new();
    /// slipring::ring(64, || 0u64)
    ///     .fan_out(|side| {
    ///         side.read("journal", |_, _| ()).branch(|branch| {
    ///             branch.read("check", |_, _| ()).read("send", |value, _| order.push(*value))
    ///         })
    ///     })
    ///     .feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(order, [1, 2, 3]); // `send` comes after `check`, and beside `journal`
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn branch(
        mut self,
        declare: impl FnOnce(Chain<'env, E, L, Branch>) -> Chain<'env, E, L, Branch>,
    ) -> Self {
        let Chain { declared, after, .. } =
            Chain::nested(self.declared, &self.after, "a branch", declare);
        self.declared = declared;
        if after != self.after {
            self.ends.extend(after);
        }
        self
    }
}

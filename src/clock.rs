//! Reading and awaiting instants.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use crate::fd;
use crate::lock::Moment;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// A source of instants.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// `CLOCK_BOOTTIME`, which counts the time of a suspend.
    Boot,
    /// The runtime's clock, which tests can pause. Instants count from the given one.
    Runtime(tokio::time::Instant),
}

/// Returns the present moment on `CLOCK_BOOTTIME`.
pub fn now() -> Moment {
    let t = clock_gettime(ClockId::Boottime);
    let (s, ns) = (u64::try_from(t.tv_sec).unwrap_or(0), u64::try_from(t.tv_nsec).unwrap_or(0));
    Moment::from_nanos(s * 1_000_000_000 + ns)
}

/// Returns a random length between half of `length` and `length`, so that many clients do not act at once.
pub fn jittered(length: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    length.mul_f64(0.5 + share / 2.0)
}

impl Clock {
    /// Returns the present moment.
    pub fn now(self) -> Moment {
        match self {
            Self::Boot => now(),
            // Starts at an hour, so that tests can look back.
            Self::Runtime(start) => Moment::from_nanos(3_600_000_000_000) + start.elapsed(),
        }
    }

    /// Completes at `when`: at once if that is past, never at [`Moment::NEVER`].
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn sleep_until(self, when: Moment) {
        Alarm::default().sleep_until(self, when).await;
    }

    /// Returns the result of `work`, or `None` at `until`.
    pub async fn by<T>(self, until: Moment, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = work => Some(value),
            () = self.sleep_until(until) => None,
        }
    }
}

/// A timer for a loop that sets it many times: one descriptor for all of them.
#[derive(Debug, Default)]
pub struct Alarm {
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Alarm {
    /// Completes as [`Clock::sleep_until`] does. Cancel-safe.
    pub async fn sleep_until(&mut self, clock: Clock, when: Moment) {
        if when.is_never() {
            return std::future::pending().await;
        }
        loop {
            let left = when.since(clock.now());
            match clock {
                _ if left.is_zero() => return,
                Clock::Runtime(_) => tokio::time::sleep(left).await,
                Clock::Boot => {
                    // Without a free descriptor the runtime's timer serves. It is late after a suspend. The front's
                    // guard is not: its timer exists before the command starts.
                    if self.fire_at(when).await.is_err() {
                        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
                    }
                }
            }
        }
    }

    async fn fire_at(&mut self, when: Moment) -> Result<(), Errno> {
        if self.timer.is_none() {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            self.timer = Some(fd::watch(timer).map_err(|_| Errno::MFILE)?);
        }
        let timer = self.timer.as_ref().ok_or(Errno::MFILE)?;
        while now() < when {
            set_timer(timer, when)?;
            // Readiness may be left from an earlier setting. The clock decides.
            let mut ready = timer.readable().await.map_err(|_| Errno::IO)?;
            ready.clear_ready();
        }
        Ok(())
    }
}

/// Arms `timer`, a timerfd on `CLOCK_BOOTTIME`, to fire once at `when`. Disarms it at [`Moment::NEVER`].
pub fn set_timer(timer: impl std::os::fd::AsFd, when: Moment) -> Result<(), Errno> {
    // Zero disarms the timer. A moment in the past fires at once.
    let nanos = if when.is_never() { 0 } else { when.as_nanos().max(1) };
    let it_value = Timespec::try_from(Duration::from_nanos(nanos)).map_err(|_| Errno::INVAL)?;
    let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_can_be_set_again_and_again() {
        let mut alarm = Alarm::default();
        let start = now();
        let far = alarm.sleep_until(Clock::Boot, start + Duration::from_secs(3600));
        assert!(tokio::time::timeout(Duration::from_millis(5), far).await.is_err());
        for ms in [30, 10, 40] {
            alarm.sleep_until(Clock::Boot, start + Duration::from_millis(ms)).await;
            assert!(now() >= start + Duration::from_millis(ms));
        }
    }
}

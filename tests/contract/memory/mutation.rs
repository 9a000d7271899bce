//! Seeded faults for mutation tests.

/// A defect of a [`super::MemoryServer`], with the clause that it violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// C01: `--slots N` admits N + 1.
    SlotsAdmitOneTooMany,
    /// C01: reports the next hold before the present hold has ended.
    TellsHoldEarly,
    /// C01: a claim of the same holder passes as the same claim.
    Reentrant,
    /// C01: a claim on several names holds as soon as the first name is its own.
    TellsHoldOnFirstName,
    /// C01: a claim on several names enters only the first queue.
    EntersFirstNameOnly,
    /// C02: the newest waiter comes first.
    GrantsOutOfOrder,
    /// C02: a shared claim passes a waiting exclusive one.
    SharedPassesExclusive,
    /// C02: withdrawing from the middle takes the rest of the queue along.
    WithdrawCutsLine,
    /// C02: `--supersede` does nothing.
    SupersedeIgnored,
    /// C02: `--supersede` also removes a holder.
    SupersedeEndsHolder,
    /// C02: entries do not show the ancestors of their claims.
    AncestorsUnshown,
    /// C02: entries do not show the other queues in which the search for a cycle continues.
    RelatedUnshown,
    /// C03: every fifth token repeats the previous one.
    RepeatsToken,
    /// C03: tokens start again after the queue was empty.
    TokensRestartWhenIdle,
    /// C03: shared claims have a token counter of their own.
    TokensPerMode,
    /// C03: a restart forgets the token counter.
    ForgetsTokensOnRestart,
    /// C03: a restart drops the waiters.
    ForgetsWaitersOnRestart,
    /// C04: a waiter never expires.
    KeepsAbandonedWaiters,
    /// C04: a holder never expires.
    KeepsAbandonedHolders,
    /// C05: entering twice with one id creates two entries.
    EnterNotIdempotent,
    /// C05: an entry whose client never received the answer cannot be evicted.
    UnansweredCannotBeEvicted,
    /// C06: a claim that waits is not notified.
    LosesWakeUps,
    /// C06: the first answer comes only with the first change.
    FirstAnswerLate,
    /// C06: a loss is never reported.
    TellsNoLoss,
    /// C07: renewing an expired entry brings it back.
    RevivesExpired,
    /// C07: a renewal counts from its end.
    RenewCountsFromEnd,
    /// C07: a renewal is answered and not executed.
    RenewDoesNothing,
    /// C08: leaving twice is an error.
    LeaveNotIdempotent,
    /// C08: only a holder can leave.
    WaiterCannotLeave,
    /// C08: a run that failed is recorded as a success.
    RecordsFailure,
    /// C08: the last success is that of the run which ended last.
    LastToEndSucceeds,
    /// C09: evicts holders, too.
    EvictsHolder,
    /// C09: asking to leave removes the entry at once.
    AskRemoves,
    /// C09: a request to leave is never reported.
    AskIsForgotten,
    /// C09: a value is published for a waiter, too.
    WaiterPublishes,
    /// C10: inspecting a queue removes its waiters.
    InspectPurges,
    /// C10: `list` is in no order.
    ListUnsorted,
    /// C10: an observer reports nothing after the first status.
    ObserverSleeps,
    /// C11: a frozen service blocks the caller for ever.
    IgnoresDeadlines,
    /// C12: errors do not name the lock.
    ErrorWithoutLock,
    /// C12: a mismatch is reported as transient.
    MismatchIsTransient,
    /// C13: the TTL ends by the client's clock.
    TrustsClientClock,
    /// C14: texts are cut after 64 characters.
    TruncatesTexts,
    /// C14: control characters are dropped from texts.
    CleansTexts,
    /// C14: names that differ in case are one lock.
    FoldsNames,
    /// C14: names end at the first slash.
    CutsNamesAtSlash,
    /// C15: kinds are not checked.
    MixesKinds,
    /// C15: the entry of a mismatch stays.
    MismatchStays,
    /// C15: a mismatch does not name the holder.
    MismatchUnnamed,
}

impl Mutation {
    pub(crate) const ALL: &[Self] = &[
        Self::SlotsAdmitOneTooMany,
        Self::TellsHoldEarly,
        Self::Reentrant,
        Self::TellsHoldOnFirstName,
        Self::EntersFirstNameOnly,
        Self::GrantsOutOfOrder,
        Self::SharedPassesExclusive,
        Self::WithdrawCutsLine,
        Self::SupersedeIgnored,
        Self::SupersedeEndsHolder,
        Self::AncestorsUnshown,
        Self::RelatedUnshown,
        Self::RepeatsToken,
        Self::TokensRestartWhenIdle,
        Self::TokensPerMode,
        Self::ForgetsTokensOnRestart,
        Self::ForgetsWaitersOnRestart,
        Self::KeepsAbandonedWaiters,
        Self::KeepsAbandonedHolders,
        Self::EnterNotIdempotent,
        Self::UnansweredCannotBeEvicted,
        Self::LosesWakeUps,
        Self::FirstAnswerLate,
        Self::TellsNoLoss,
        Self::RevivesExpired,
        Self::RenewCountsFromEnd,
        Self::RenewDoesNothing,
        Self::LeaveNotIdempotent,
        Self::WaiterCannotLeave,
        Self::RecordsFailure,
        Self::LastToEndSucceeds,
        Self::EvictsHolder,
        Self::AskRemoves,
        Self::AskIsForgotten,
        Self::WaiterPublishes,
        Self::InspectPurges,
        Self::ListUnsorted,
        Self::ObserverSleeps,
        Self::IgnoresDeadlines,
        Self::ErrorWithoutLock,
        Self::MismatchIsTransient,
        Self::TrustsClientClock,
        Self::TruncatesTexts,
        Self::CleansTexts,
        Self::FoldsNames,
        Self::CutsNamesAtSlash,
        Self::MixesKinds,
        Self::MismatchStays,
        Self::MismatchUnnamed,
    ];
}

//! Seeded faults for mutation tests.

/// A defect of a [`super::MemoryServer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// `--slots N` admits N + 1.
    SlotsAdmitOneTooMany,
    /// Reports the next hold before the present hold has ended.
    TellsHoldEarly,
    /// A claim on several names holds as soon as the first name is its own.
    TellsHoldOnFirstName,
    /// The newest waiter comes first.
    GrantsOutOfOrder,
    /// A shared claim passes a waiting exclusive one.
    SharedPassesExclusive,
    /// `--supersede` does nothing.
    SupersedeIgnored,
    /// Entries do not show the ancestors of their claims.
    AncestorsUnshown,
    /// Every fifth token repeats the previous one.
    RepeatsToken,
    /// A restart forgets the token counter.
    ForgetsTokensOnRestart,
    /// A holder never expires.
    KeepsAbandonedHolders,
    /// Entering twice with one id creates two entries.
    EnterNotIdempotent,
    /// A claim that waits is not notified.
    LosesWakeUps,
    /// A renewal counts from its end.
    RenewCountsFromEnd,
    /// A renewal is answered and not executed.
    RenewDoesNothing,
    /// Only a holder can leave.
    WaiterCannotLeave,
    /// The last success is that of the run which ended last.
    LastToEndSucceeds,
    /// Asking to leave removes the entry at once.
    AskRemoves,
    /// `list` is in no order.
    ListUnsorted,
    /// An observer reports nothing after the first status.
    ObserverSleeps,
    /// A frozen service blocks the caller for ever.
    IgnoresDeadlines,
    /// Errors do not name the lock.
    ErrorWithoutLock,
    /// The TTL ends by the client's clock.
    TrustsClientClock,
    /// Texts are cut after 64 characters.
    TruncatesTexts,
    /// Names that differ in case are one lock.
    FoldsNames,
    /// Kinds are not checked.
    MixesKinds,
}

impl Mutation {
    /// Each of them, with the clause that it violates.
    pub(crate) const ALL: &[(Self, &str)] = &[
        (Self::SlotsAdmitOneTooMany, "c01"),
        (Self::TellsHoldEarly, "c01"),
        (Self::TellsHoldOnFirstName, "c01"),
        (Self::GrantsOutOfOrder, "c02"),
        (Self::SharedPassesExclusive, "c02"),
        (Self::SupersedeIgnored, "c02"),
        (Self::AncestorsUnshown, "c02"),
        (Self::RepeatsToken, "c03"),
        (Self::ForgetsTokensOnRestart, "c03"),
        (Self::KeepsAbandonedHolders, "c04"),
        (Self::EnterNotIdempotent, "c05"),
        (Self::LosesWakeUps, "c06"),
        (Self::RenewCountsFromEnd, "c07"),
        (Self::RenewDoesNothing, "c07"),
        (Self::WaiterCannotLeave, "c08"),
        (Self::LastToEndSucceeds, "c08"),
        (Self::AskRemoves, "c09"),
        (Self::ListUnsorted, "c10"),
        (Self::ObserverSleeps, "c10"),
        (Self::IgnoresDeadlines, "c11"),
        (Self::ErrorWithoutLock, "c12"),
        (Self::TrustsClientClock, "c13"),
        (Self::TruncatesTexts, "c14"),
        (Self::FoldsNames, "c14"),
        (Self::MixesKinds, "c15"),
    ];
}

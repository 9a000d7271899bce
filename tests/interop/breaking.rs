//! Ends holds of foreign clients: `dlock break --force`, and the refusal without it.

use crate::support::TestEnv;

/// A lock that foreign clients and dlock share.
pub(crate) struct Shared<'a> {
    pub(crate) env: &'a TestEnv,
    /// The name of the lock in dlock.
    pub(crate) name: &'a str,
    /// The name of the foreign client's entry at the service, or its beginning.
    pub(crate) key: &'a str,
}

impl Shared<'_> {
    /// Returns the claim of the only holder, which is foreign.
    fn claim(&self) -> String {
        let status = self.env.status(self.name);
        let holders = status["holders"].as_array().expect("a list of holders");
        assert!(holders.len() == 1 && holders[0]["foreign"] == true, "{status}");
        let claim = holders[0]["claim"].as_str().unwrap_or_else(|| panic!("a claim in {status}")).to_owned();
        assert!(claim.len() == 32 && claim.bytes().all(|byte| byte.is_ascii_hexdigit()), "{claim}");
        claim
    }

    fn break_(&self, options: &[&str]) -> crate::support::running::Finished {
        let words = [&[self.name, "--yes"], options].concat();
        self.env.finish(&mut self.env.verb("break", words))
    }

    /// Tries each way to end the hold of a foreign client, the first one with a waiter. `hold` makes that client hold
    /// the lock, and gets a name that is another one each time.
    pub(crate) fn every_hold_is_ended(&self, mut hold: impl FnMut(&str)) {
        hold("a");
        let claim = self.claim();
        assert_eq!(self.claim(), claim, "it stays the same");
        for options in [&[] as &[&str], &["--all"], &["--claim", &claim]] {
            self.break_(options).failed(64, &["--force", "client other than dlock", self.key]);
        }
        let table = self.env.finish(&mut self.env.verb("status", [self.name])).silently(0).text();
        assert!(table.contains(&format!("(not dlock) {}", self.key)), "{table}");
        let tried = ["--try", "--name", self.name, "--", "true"];
        let busy = self.env.finish(&mut self.env.verb("run", tried));
        busy.failed(75, &["is busy", "held by a client other than dlock", self.key]);
        self.break_(&["--force", "--claim", "0123456789abcdef"]).failed(76, &[]);
        assert_eq!(self.claim(), claim, "nothing was changed");
        let script = "echo up >waiter.up";
        let waiter = self
            .env
            .start(self.env.verb("run", ["-q", "--name", self.name]).args(["--", "sh", "-c", script]));
        self.env.await_waiters(self.name, 1);
        if !self.env.is_redlock() {
            let several = self.break_(&["--force"]).said_one_line(&["2 claims", "--claim"]);
            assert!(several.code() == Some(64) && several.text().contains(&claim[..8]), "{}", several.text());
        }
        assert!(!self.env.exists("waiter.up"), "it waits");
        self.ended(&["--force", "--claim", &claim[..12]]);
        waiter.finish().silently(0);
        self.env.await_line("waiter.up");
        self.break_(&["--force", "--claim", &claim]).failed(76, &[]);
        for (name, options) in [("b", &["--force"] as &[&str]), ("c", &["--force", "--all"])] {
            hold(name);
            assert_ne!(self.claim(), claim, "another hold is another claim");
            self.break_(&["--force", "--claim", &claim]).failed(76, &[]);
            self.ended(options);
            let tried = ["--try", "--name", self.name, "--", "true"];
            self.env.finish(&mut self.env.verb("run", tried)).silently(0);
        }
        self.break_(&["--force"]).failed(76, &[]);
    }

    fn ended(&self, options: &[&str]) {
        let broken = self.break_(options).silently(0);
        let text = broken.text();
        assert!(text.contains("client other than dlock") && text.contains("overlap"), "{text}");
        assert!(text.contains(self.key), "{text}");
    }
}

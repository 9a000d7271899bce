//! A success dated by a clock that was ahead. Not on services that use the server's clock, which a test cannot set.

use crate::servers::Need;
use crate::site;
use crate::support::TestEnv;

#[test]
fn future_dated_success_prevents_no_run() {
    let site = site::shared();
    let modes = ["-x", "--shared", "--slots=2"].into_iter();
    for mode in modes.filter(|mode| *mode != "--shared" || site.kind().lacks(Need::Shared).is_none()) {
        let env = TestEnv::on(site.part());
        let run = |options: &[&str], word: &str| {
            let words =
                [&["-q", "--name", "x", mode], options, &["--", "sh", "-c", r#"echo "$0" >>log"#, word]];
            env.finish(&mut env.run(words.concat())).silently(0);
        };
        let once = ["--once-per", "1h"];
        run(&[], "first");
        run(&once, "skipped");
        site.postdate(env.service(), "x");
        run(&once, "second");
        run(&once, "skipped");
        assert_eq!(env.read("log"), "first\nsecond\n", "{mode}");
    }
}

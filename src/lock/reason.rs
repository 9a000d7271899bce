//! Why something failed, in parts.

use std::fmt;

/// Why something failed: what is wrong, with which server, and what to do or to look at.
///
/// `Display` is the sentence for people: a lowercase fragment. What the program wants to know of a reason it asks for, and finds
/// in no words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// At least one; several if several servers are concerned.
    complaints: Vec<Complaint>,
    about: About,
    remedy: Option<Remedy>,
}

/// What is wrong, and with which server, if that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Complaint {
    server: Option<Server>,
    what: String,
}

/// How a server is named.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Server {
    /// `h:1: connection refused`.
    Ahead(String),
    /// `h:1 does not answer`.
    Subject(String),
}

/// What a reason is about, the later the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum About {
    /// What was to be done.
    Request,
    /// Reaching the service, whatever was to be done there.
    Service,
    /// That something else is where the service should be.
    Stranger,
}

/// What may help.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Remedy {
    /// A question that says what to look at. It can be said apart from the rest.
    Question(&'static str),
    /// Anything else.
    Advice(String),
}

impl Reason {
    /// That `server` does `what`, as in `h:1 does not answer`.
    pub fn of(server: &impl fmt::Display, what: impl Into<String>) -> Self {
        let server = Some(Server::Subject(server.to_string()));
        Self { complaints: vec![Complaint { server, what: what.into() }], ..Self::from("") }
    }

    /// The same of `server`, with that ahead.
    #[must_use]
    pub fn at(mut self, server: &impl fmt::Display) -> Self {
        if let Some(first) = self.complaints.first_mut() {
            let server = Some(Server::Ahead(server.to_string()));
            // Whom that server named stays part of what it said.
            *first = Complaint { server, what: first.to_string() };
        }
        self
    }

    /// The same, about that.
    #[must_use]
    pub fn about(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// The same, with a question at its end that says what to look at.
    #[must_use]
    pub fn asking(self, question: &'static str) -> Self {
        match self.remedy {
            None => Self { remedy: Some(Remedy::Question(question)), ..self },
            Some(_) => self.advising(question),
        }
    }

    /// The same, with what to do about it, behind what is said of that already.
    #[must_use]
    pub fn advising(self, advice: impl fmt::Display) -> Self {
        let advice = match self.remedy {
            Some(before) => format!("{before}; {advice}"),
            None => advice.to_string(),
        };
        Self { remedy: Some(Remedy::Advice(advice)), ..self }
    }

    /// Several in one sentence, about the worst, with the last remedy that none had before.
    #[must_use]
    pub fn joined(reasons: Vec<Self>) -> Self {
        let about = worst(&reasons);
        let mut remedies = Vec::new();
        let mut complaints = Vec::new();
        for reason in reasons {
            complaints.extend(reason.complaints);
            remedies.extend(reason.remedy.filter(|remedy| !remedies.contains(remedy)));
        }
        Self { complaints, about, remedy: remedies.pop() }
    }

    /// Several as part of one sentence, which `sentence` makes of their own; about the worst, with the first question.
    #[must_use]
    pub fn within(reasons: &[Self], sentence: impl FnOnce(&str) -> String) -> Self {
        let mut whats: Vec<String> = reasons.iter().map(|reason| reason.what().to_string()).collect();
        whats.dedup();
        let reason = Self::from(sentence(&whats.join("; "))).about(worst(reasons));
        let question = reasons.iter().find_map(|reason| match reason.remedy {
            Some(Remedy::Question(question)) => Some(question),
            _ => None,
        });
        Self { remedy: question.map(Remedy::Question), ..reason }
    }

    /// Whether it is about the service, whatever was to be done there.
    pub fn is_about_the_service(&self) -> bool {
        self.about > About::Request
    }

    /// Whether something else is where the service should be.
    pub fn is_about_a_stranger(&self) -> bool {
        self.about == About::Stranger
    }

    /// Whether it says which server it is about.
    pub fn names_a_server(&self) -> bool {
        self.complaints.iter().any(|complaint| complaint.server.is_some())
    }

    /// The server whose name is ahead of the whole.
    pub fn server(&self) -> Option<&str> {
        match &self.complaints.first()?.server {
            Some(Server::Ahead(server)) => Some(server),
            _ => None,
        }
    }

    /// The question at its end that says what to look at.
    pub fn question(&self) -> Option<&'static str> {
        match self.remedy {
            Some(Remedy::Question(question)) => Some(question),
            _ => None,
        }
    }

    /// The same without that question.
    #[must_use]
    pub fn what(&self) -> Self {
        let remedy = self.remedy.clone().filter(|remedy| matches!(remedy, Remedy::Advice(_)));
        Self { remedy, ..self.clone() }
    }

    /// What it says, and apart from that what to do about it.
    pub fn apart(self) -> (String, Option<String>) {
        let remedy = self.remedy.as_ref().map(ToString::to_string);
        (Self { remedy: None, ..self }.to_string(), remedy)
    }

    /// The same without the server, if it is about one: where that is said beside it.
    #[must_use]
    pub fn without_server(mut self) -> Self {
        if let [only] = self.complaints.as_mut_slice() {
            only.server = None;
        }
        self
    }
}

fn worst(reasons: &[Reason]) -> About {
    reasons.iter().map(|reason| reason.about).max().unwrap_or(About::Request)
}

impl From<String> for Reason {
    fn from(what: String) -> Self {
        let complaints = vec![Complaint { server: None, what }];
        Self { complaints, about: About::Request, remedy: None }
    }
}

impl From<&str> for Reason {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, complaint) in self.complaints.iter().enumerate() {
            let between = if at > 0 { "; " } else { "" };
            write!(f, "{between}{complaint}")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(Server::Ahead(server)) => write!(f, "{server}: {}", self.what),
            Some(Server::Subject(server)) => write!(f, "{server} {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Question(question) => question,
            Self::Advice(advice) => advice,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(server: &str) -> Reason {
        Reason::from("connection refused").about(About::Service).asking("is it running there?").at(&server)
    }

    #[test]
    fn its_parts_are_one_sentence_and_are_asked_for() {
        let reason = refused("h:1");
        assert_eq!(reason.to_string(), "h:1: connection refused; is it running there?");
        assert_eq!((reason.server(), reason.question()), (Some("h:1"), Some("is it running there?")));
        assert_eq!(reason.what().to_string(), "h:1: connection refused");
        assert_eq!(reason.what().without_server().to_string(), "connection refused");
        assert!(reason.is_about_the_service() && !reason.is_about_a_stranger());

        let advised = Reason::of(&"h:1", "is full").advising("make room").advising("or wait");
        assert_eq!(advised.to_string(), "h:1 is full; make room; or wait");
        assert_eq!((advised.server(), advised.question()), (None, None));
        assert_eq!(advised.what(), advised, "advice is no question");
        assert_eq!(advised.without_server().to_string(), "is full; make room; or wait");
        // Who passed it on is named before whoever said it.
        assert_eq!(refused("b:2").at(&"a:1").what().to_string(), "a:1: b:2: connection refused");
    }

    #[test]
    fn a_question_is_one_only_at_the_end() {
        let more = refused("h:1").advising("it was asked twice");
        assert_eq!(more.to_string(), "h:1: connection refused; is it running there?; it was asked twice");
        assert_eq!(more.question(), None);
        let both = Reason::from("x").advising("do y").asking("why?");
        assert_eq!((both.to_string().as_str(), both.question()), ("x; do y; why?", None));
        assert_eq!(Reason::from("x; why?").question(), None, "its words are not searched");
    }

    #[test]
    fn several_are_one_about_the_worst() {
        let stranger =
            Reason::of(&"b:2", "is another").about(About::Stranger).asking("is this the right port?");
        let all = Reason::joined(vec![refused("a:1"), stranger, refused("c:3")]);
        let sentence =
            "a:1: connection refused; b:2 is another; c:3: connection refused; is this the right port?";
        assert_eq!(all.to_string(), sentence);
        assert!(all.is_about_a_stranger());
        assert_eq!(all.server(), Some("a:1"));
        assert_eq!(all.clone().without_server(), all, "it is not about one");

        let nodes = [refused("a:1"), refused("a:1"), Reason::from("x").advising("do y")];
        let nodes = Reason::within(&nodes, |why| format!("none of 3 ({why})"));
        let sentence = "none of 3 (a:1: connection refused; x; do y); is it running there?";
        assert_eq!(nodes.to_string(), sentence);
        assert!(nodes.is_about_the_service() && nodes.server().is_none());
    }
}

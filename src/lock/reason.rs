//! The reason of a failure, in parts.

use std::fmt;

/// The reason of a failure: the fault, the server, and advice.
///
/// `Display` is the sentence for users, a lowercase fragment. The program decides by the methods, never by the words of
/// the sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// At least one; several if several servers are concerned.
    complaints: Vec<Complaint>,
    about: About,
    remedy: Option<Remedy>,
}

/// A fault, and its server, if that is known.
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

/// The subject of a reason, in order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum About {
    /// The request.
    Request,
    /// The service, regardless of the request.
    Service,
    /// Another service at the place of the expected one.
    Stranger,
}

/// The advice.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Remedy {
    text: String,
    /// Whether it is a question to check, which can be separated from the rest.
    is_question: bool,
}

impl Reason {
    /// Creates the reason that `server` does `what`, as in `h:1 does not answer`.
    pub fn of(server: &impl fmt::Display, what: impl Into<String>) -> Self {
        let server = Some(Server::Subject(server.to_string()));
        Self { complaints: vec![Complaint { server, what: what.into() }], ..Self::from("") }
    }

    /// Adds `server` at the beginning.
    #[must_use]
    pub fn at(mut self, server: &impl fmt::Display) -> Self {
        if let Some(first) = self.complaints.first_mut() {
            let server = Some(Server::Ahead(server.to_string()));
            // A server that was named before remains in the text of this one.
            *first = Complaint { server, what: first.to_string() };
        }
        self
    }

    /// Replaces the subject.
    #[must_use]
    pub fn about(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// Appends a question to check.
    #[must_use]
    pub fn asking(self, question: &str) -> Self {
        let is_question = self.remedy.is_none();
        let mut asked = self.advising(question);
        asked.remedy.iter_mut().for_each(|remedy| remedy.is_question = is_question);
        asked
    }

    /// Appends advice after existing advice.
    #[must_use]
    pub fn advising(self, advice: impl fmt::Display) -> Self {
        let text = match self.remedy {
            Some(before) => format!("{}; {advice}", before.text),
            None => advice.to_string(),
        };
        Self { remedy: Some(Remedy { text, is_question: false }), ..self }
    }

    /// Joins several reasons in one sentence, with the most severe subject and the last of their distinct remedies.
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

    /// Combines several reasons as part of one sentence, which `sentence` builds from theirs. It has the most severe
    /// subject and the first question.
    #[must_use]
    pub fn within(reasons: &[Self], sentence: impl FnOnce(&str) -> String) -> Self {
        let mut whats: Vec<String> = reasons.iter().map(|reason| reason.what().to_string()).collect();
        whats.dedup();
        let reason = Self::from(sentence(&whats.join("; "))).about(worst(reasons));
        let mut remedies = reasons.iter().filter_map(|reason| reason.remedy.as_ref());
        Self { remedy: remedies.find(|remedy| remedy.is_question).cloned(), ..reason }
    }

    /// Returns whether it concerns the service, regardless of the request.
    pub fn is_about_the_service(&self) -> bool {
        self.about > About::Request
    }

    /// Returns whether another service is at the place of the expected one.
    pub fn is_about_a_stranger(&self) -> bool {
        self.about == About::Stranger
    }

    /// Returns the server at the beginning of the sentence.
    pub fn server(&self) -> Option<&str> {
        match &self.complaints.first()?.server {
            Some(Server::Ahead(server)) => Some(server),
            _ => None,
        }
    }

    /// Returns the question at the end of the sentence.
    pub fn question(&self) -> Option<&str> {
        self.remedy.as_ref().filter(|remedy| remedy.is_question).map(|remedy| remedy.text.as_str())
    }

    /// Returns the reason without that question.
    #[must_use]
    pub fn what(&self) -> Self {
        let remedy = self.remedy.clone().filter(|remedy| !remedy.is_question);
        Self { remedy, ..self.clone() }
    }

    /// Returns the text without the advice, and the advice.
    pub fn apart(self) -> (String, Option<String>) {
        let remedy = self.remedy.as_ref().map(|remedy| remedy.text.clone());
        (Self { remedy: None, ..self }.to_string(), remedy)
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
            Some(remedy) => write!(f, "; {}", remedy.text),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(server: &str) -> Reason {
        Reason::from("connection refused").about(About::Service).asking("is it running there?").at(&server)
    }

    #[test]
    fn reason_parts_form_one_sentence_and_can_be_read() {
        let reason = refused("h:1");
        assert_eq!(reason.to_string(), "h:1: connection refused; is it running there?");
        assert_eq!((reason.server(), reason.question()), (Some("h:1"), Some("is it running there?")));
        assert_eq!(reason.what().to_string(), "h:1: connection refused");
        assert!(reason.is_about_the_service() && !reason.is_about_a_stranger());

        let advised = Reason::of(&"h:1", "is full").advising("make room").advising("or wait");
        assert_eq!(advised.to_string(), "h:1 is full; make room; or wait");
        assert_eq!((advised.server(), advised.question()), (None, None));
        assert_eq!(advised.what(), advised, "advice is no question");
        // The server that passed an error on is named before the server that reported it.
        assert_eq!(refused("b:2").at(&"a:1").what().to_string(), "a:1: b:2: connection refused");
    }

    #[test]
    fn question_counts_only_at_the_end() {
        let more = refused("h:1").advising("it was asked twice");
        assert_eq!(more.to_string(), "h:1: connection refused; is it running there?; it was asked twice");
        assert_eq!(more.question(), None);
        let both = Reason::from("x").advising("do y").asking("why?");
        assert_eq!((both.to_string().as_str(), both.question()), ("x; do y; why?", None));
        assert_eq!(Reason::from("x; why?").question(), None, "its words are not searched");
    }

    #[test]
    fn several_reasons_become_one_about_the_worst() {
        let stranger =
            Reason::of(&"b:2", "is another").about(About::Stranger).asking("is this the right port?");
        let all = Reason::joined(vec![refused("a:1"), stranger, refused("c:3")]);
        let sentence =
            "a:1: connection refused; b:2 is another; c:3: connection refused; is this the right port?";
        assert_eq!(all.to_string(), sentence);
        assert!(all.is_about_a_stranger());
        assert_eq!(all.server(), Some("a:1"));

        let nodes = [refused("a:1"), refused("a:1"), Reason::from("x").advising("do y")];
        let nodes = Reason::within(&nodes, |why| format!("none of 3 ({why})"));
        let sentence = "none of 3 (a:1: connection refused; x; do y); is it running there?";
        assert_eq!(nodes.to_string(), sentence);
        assert!(nodes.is_about_the_service() && nodes.server().is_none());
    }
}

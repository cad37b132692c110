// Package why explains why an object is not well: it names what is wrong, follows the causes over
// other objects down to the root, and says what helps.
//
// Words:
//   - subject: the object that a question is about.
//   - finding: one thing that is wrong with one object, with evidence and a remedy. Its cause is a
//     stable name, such as pod-cpu.
//   - link: a finding's reference to another object that may be the reason.
//   - root cause: a finding whose links lead to no further finding.
//   - rule: a pure function from a Snapshot and an object to findings. All rules are in one list.
//   - custom kind: a kind that is not built in. Discovery names it; its objects are unstructured.
//   - need: a lookup of a rule that the Snapshot cannot answer yet. The engine reads all needs of a
//     round together and runs the rules again, until there are none.
//
// In: a question, and a Reader that reads objects, events and the ends of logs with the caller's
// rights. Out: an Answer. Areas lists the names of causes, of which docs/reference/why-causes.md is
// made. The same data gives the same Answer.
//
// See docs/adr/0087-why-rules-over-a-snapshot.md.
package why

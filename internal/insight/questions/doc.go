// Package questions answers questions of an API's clients about objects as they are now.
//
// Words. An Answerer answers one kind of question.
//
// In: the query of a request, and a client configuration with the caller's rights. Out: a document
// with its media type, or an error of the API.
//
// internal/apiserver serves the answers below /insight/v1/; it limits their number, time and reads.
package questions

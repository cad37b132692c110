// Package telemetry counts and times requests, the filters before them, and calls of the store,
// under upstream's names of metrics.
//
// Words. The requestLabels of a request are its verb, kind and scope. A series is the metrics of
// all requests with equal labels, so that a request looks its labels up once. A ResponseRecorder
// is the ResponseWriter of a request, and keeps what metrics and the audit log need.
//
// All collectors belong to one Metrics, and a server has one.
package telemetry

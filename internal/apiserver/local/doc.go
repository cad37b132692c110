// Package local is the API for components of the same process: the pipeline of package verb by
// function call, under the component's own user, without serialization. Requests for kinds of
// extension servers go out over HTTP.
package local

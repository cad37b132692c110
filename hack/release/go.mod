// Module release makes what stands beside the binaries of a release: the list of their parts and the licences of these.
module github.com/knarr-project/knarr/hack/release

go 1.26

require (
	github.com/google/licenseclassifier/v2 v2.0.0
	github.com/spdx/tools-golang v0.5.5
)

require (
	github.com/anchore/go-struct-converter v0.0.0-20221118182256-c68fdcfa2092 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/sergi/go-diff v1.1.0 // indirect
)

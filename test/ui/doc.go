// Package ui holds tests of the page in the browser (internal/ui), in Debian's Chromium without a
// window. Each test has a cluster of knarrtest with hollow nodes, and a fresh profile; one has a
// node with real containers in a network namespace, as root. Chromium reaches loopback addresses
// only.
//
// It is a module of its own, because only tests drive a browser. `make ui` installs Chromium,
// fetches the rules of axe as axe/package-lock.json pins them, and runs it. With
// KNARR_UI_IMAGES=FOLDER the tests write the pictures of docs/images; with KNARR_UI_MEASURE=PODS a
// measurement prints how fast the page is with so many pods.
package ui

// Package images gets the images that containers need: pull policies, pull secrets, back-off; and collects images that
// nothing uses when the disk fills up.
package images

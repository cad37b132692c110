// Package images pulls the images of containers, with pull policies, pull secrets and back-off. It
// also removes unused images when the disk fills up.
package images

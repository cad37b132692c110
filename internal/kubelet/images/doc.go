// Package images pulls the images of containers, with pull policies, pull secrets and back-off. It
// also removes unused images when the disk fills up. It records the credentials of each pull, so
// that a present image is used only by pods that may pull it (docs/adr/0062).
package images

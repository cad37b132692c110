// Package local makes persistent volumes on the disks of a node, for classes whose provisioner is
// local.knarr.dev. ADR 0049 explains the design.
//
// Words. A folder is a place for volumes on a node: --local-storage-path names it, and the
// parameter folder of a class selects it. A Kind says how a volume is stored and whether its size
// is enforced. A Report is a node's state of its folders and volumes: an annotation of the Node.
//
// Each step has one owner:
//
//	scheduler    writes the node into the claim (volume.kubernetes.io/selected-node)
//	controller   creates the PersistentVolume with the annotation Pending and the node's label
//	node         makes the volume on its disk and reports it as ready, or why that failed
//	controller   removes Pending; the claim is bound; the scheduler binds the pod
//	node         attaches the volume when a pod mounts it (Prepare)
//
// Growth and removal work the same way: the controller asks by the PersistentVolume, and the node
// answers by its Report. So a node writes its own Node only. controllers/volume has the controller.
//
// On the disk, a volume is one folder with the PersistentVolume's name:
//
//	FOLDER/PV/volume.json   what it is (record)
//	FOLDER/PV/data          the content, of kinds Quota and Plain
//	FOLDER/PV/disk          the image, of kinds Image and Block
//	FOLDER/PV/mount         where an Image is mounted
//
// FOLDER/PV appears by a rename when it is complete, and disappears by a rename before its content
// is removed. So a killed process leaves only names that begin with a dot, which the next start
// removes.
//
// In: the PersistentVolumes with the node's label. Out: folders, images, loop devices, mounts, the
// annotation of the Node.
package local

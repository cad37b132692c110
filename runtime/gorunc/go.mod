module github.com/containerd/go-runc

go 1.26.6

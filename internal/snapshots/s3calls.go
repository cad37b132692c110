package snapshots

import (
	"context"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
)

// s3Calls are the requests of S3. They are functions around the client, because a field with the
// client in a type that becomes an interface makes the linker keep all of the client's methods:
// 0.8 MB of the program.
type s3Calls struct {
	list func(ctx context.Context, prefix string, each func(key string, size int64, modified time.Time)) error
	stat func(ctx context.Context, key string) (size int64, modified time.Time, err error)
	// read returns an error if there is no such object.
	read   func(ctx context.Context, key string) (io.ReadCloser, error)
	put    func(ctx context.Context, key, contentType string, from io.Reader, size int64) error
	remove func(ctx context.Context, key string) error
	// unfinished lists uploads in parts that have not ended. abort ends those of a key.
	unfinished func(ctx context.Context, prefix string, each func(key string, begun time.Time) error) error
	abort      func(ctx context.Context, key string) error
}

func newS3Calls(c *minio.Client, bucket string) s3Calls {
	return s3Calls{
		list: func(ctx context.Context, prefix string, each func(key string, size int64, modified time.Time)) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel() // ends the listing after an error
			for object := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix}) {
				if object.Err != nil {
					return object.Err
				}
				each(object.Key, object.Size, object.LastModified)
			}
			return ctx.Err()
		},
		stat: func(ctx context.Context, key string) (int64, time.Time, error) {
			info, err := c.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
			return info.Size, info.LastModified, err
		},
		read: func(ctx context.Context, key string) (io.ReadCloser, error) {
			object, err := c.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
			if err != nil {
				return nil, err
			}
			if _, err := object.Stat(); err != nil {
				_ = object.Close()
				return nil, err
			}
			return object, nil
		},
		put: func(ctx context.Context, key, contentType string, from io.Reader, size int64) error {
			_, err := c.PutObject(ctx, bucket, key, from, size, minio.PutObjectOptions{
				ContentType: contentType, PartSize: partSize, NumThreads: 2, AutoChecksum: minio.ChecksumCRC32C,
			})
			return err
		},
		remove: func(ctx context.Context, key string) error {
			return c.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
		},
		unfinished: func(ctx context.Context, prefix string, each func(key string, begun time.Time) error) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for upload := range c.ListIncompleteUploads(ctx, bucket, prefix, true) {
				if upload.Err != nil {
					return upload.Err
				}
				if err := each(upload.Key, upload.Initiated); err != nil {
					return err
				}
			}
			return ctx.Err()
		},
		abort: func(ctx context.Context, key string) error { return c.RemoveIncompleteUpload(ctx, bucket, key) },
	}
}

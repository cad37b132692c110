package runc

import program "github.com/knarr-project/knarr/runtime/go-runc"

// What the shim uses of go-runc besides the client is go-runc's own.
type (
	CheckpointAction = program.CheckpointAction
	CheckpointOpts   = program.CheckpointOpts
	ConsoleSocket    = program.ConsoleSocket
	CreateOpts       = program.CreateOpts
	DeleteOpts       = program.DeleteOpts
	ExecOpts         = program.ExecOpts
	Exit             = program.Exit
	Format           = program.Format
	IO               = program.IO
	IOOpt            = program.IOOpt
	IOOption         = program.IOOption
	KillOpts         = program.KillOpts
	ProcessMonitor   = program.ProcessMonitor
	RestoreOpts      = program.RestoreOpts
	Socket           = program.Socket
	StartCloser      = program.StartCloser
)

// JSON is the format of the log that says why something failed.
const JSON = program.JSON

var (
	DefaultCommand       = program.DefaultCommand
	LeaveRunning         = program.LeaveRunning
	NewNullIO            = program.NewNullIO
	NewPipeIO            = program.NewPipeIO
	NewTempConsoleSocket = program.NewTempConsoleSocket
	ReadPidFile          = program.ReadPidFile
	WithExtraEnv         = program.WithExtraEnv
)

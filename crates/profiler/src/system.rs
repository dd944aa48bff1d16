//! What the compiler cannot check: the signal, its timer, the registers of the interrupted thread, and memory that may not be there.

#![expect(
    unsafe_code,
    reason = "a signal handler and the registers that it finds are there only as calls of the C library"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;

use framehop::UnwindRegsNative;

use crate::handler;

/// Bytes of a page at least: a read within so many aligned bytes succeeds or fails as a whole.
pub(crate) const PAGE: usize = 4_096;

/// Makes SIGPROF call [`handler::note`], from the first time on: a signal that comes late then finds no sampling, and does not end
/// the process.
///
/// # Errors
/// The system refuses.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    let error = *INSTALLED.get_or_init(|| {
        // SAFETY: zeros are a value of this structure of numbers, a mask and a pointer that may be null.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the structure lives until the call returns, and `on_signal` has the form that SA_SIGINFO asks for.
        match unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) } {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
        }
    });
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Has the kernel send SIGPROF after each `every_us` µs of CPU time of the process, to a thread that runs; 0: never again.
///
/// # Errors
/// The system refuses.
pub(crate) fn set_timer(every_us: u32) -> io::Result<()> {
    let every = libc::timeval {
        tv_sec: libc::time_t::from(every_us / 1_000_000),
        tv_usec: libc::suseconds_t::from(every_us % 1_000_000),
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: the structure lives until the call returns.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The identifier of the calling thread, as `/proc` has it.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    id.cast_unsigned()
}

/// Copies a page of the own memory. `false`: it is not mapped, or not readable.
pub(crate) fn read_page(address: u64, page: &mut [u8; PAGE]) -> bool {
    // Both architectures have addresses of 64 bits.
    let local = libc::iovec {
        iov_base: page.as_mut_ptr().cast(),
        iov_len: PAGE,
    };
    let remote = libc::iovec {
        iov_base: ptr::without_provenance_mut(address as usize),
        iov_len: PAGE,
    };
    // SAFETY: the kernel writes to the page, which is borrowed until the call returns, and refuses a source that it cannot read.
    let copied = unsafe {
        let own = libc::getpid();
        libc::process_vm_readv(own, &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(copied) == Ok(PAGE)
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: each thread has its own, for as long as it runs. The interrupted code may be about to read it.
    let error = unsafe { *libc::__errno_location() };
    if let Some((ip, registers)) = registers(context.cast()) {
        handler::note(ip, registers);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// Where the interrupted thread was, and what its stack begins with.
#[cfg(target_arch = "x86_64")]
fn registers(context: *const libc::ucontext_t) -> Option<(u64, UnwindRegsNative)> {
    // SAFETY: with SA_SIGINFO the kernel gives a handler the context of the thread, which lives until the handler returns.
    let context = unsafe { context.as_ref() }?;
    let register = |index: c_int| {
        let index = usize::try_from(index).ok()?;
        let value = context.uc_mcontext.gregs.get(index)?;
        Some(value.cast_unsigned())
    };
    let ip = register(libc::REG_RIP)?;
    let (sp, bp) = (register(libc::REG_RSP)?, register(libc::REG_RBP)?);
    Some((ip, UnwindRegsNative::new(ip, sp, bp)))
}

/// Where the interrupted thread was, and what its stack begins with.
#[cfg(target_arch = "aarch64")]
fn registers(context: *const libc::ucontext_t) -> Option<(u64, UnwindRegsNative)> {
    // SAFETY: with SA_SIGINFO the kernel gives a handler the context of the thread, which lives until the handler returns.
    let machine = &unsafe { context.as_ref() }?.uc_mcontext;
    let (fp, lr) = (machine.regs[29], machine.regs[30]);
    Some((machine.pc, UnwindRegsNative::new(lr, machine.sp, fp)))
}

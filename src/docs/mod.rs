//! Why dlock is built as it is: decision records, traps, and what changed.

#[doc = include_str!("gotchas.md")]
pub mod gotchas {}

#[doc = include_str!("changelog.md")]
pub mod changelog {}

/// Makes a page for each record.
macro_rules! records {
    ($($page:ident $file:literal;)*) => {
        $(#[doc = include_str!($file)]
        pub mod $page {})*
    };
}

#[doc = include_str!("adr.md")]
pub mod adr {
    records! {
        r0001_two_phase_claim "adr/0001-two-phase-claim.md";
        r0002_front_and_keeper "adr/0002-front-and-keeper.md";
        r0003_machine_and_driver "adr/0003-machine-and-driver.md";
        r0004_validity_owned_by_lease "adr/0004-validity-owned-by-lease.md";
        r0005_job_control_is_the_shells "adr/0005-job-control-is-the-shells.md";
        r0006_signals_from_a_descriptor "adr/0006-signals-from-a-descriptor.md";
        r0007_finding_the_tree "adr/0007-finding-the-tree.md";
        r0008_file_queue "adr/0008-file-queue.md";
        r0009_fencing_counter "adr/0009-fencing-counter.md";
        r0010_inherited_descriptor "adr/0010-inherited-descriptor.md";
        r0011_nested_runs_by_mark "adr/0011-nested-runs-by-mark.md";
        r0012_exit_codes "adr/0012-exit-codes.md";
        r0013_panic_abort "adr/0013-panic-abort.md";
        r0014_supervise_uses_the_clock "adr/0014-supervise-uses-the-clock.md";
        r0015_where_unsafe_is "adr/0015-where-unsafe-is.md";
        r0016_dependencies "adr/0016-dependencies.md";
        r0020_gate_before_the_command "adr/0020-gate-before-the-command.md";
        r0021_etcd_layout "adr/0021-etcd-layout.md";
        r0022_etcd_one_server_at_a_time "adr/0022-etcd-one-server-at-a-time.md";
        r0023_etcd_three_requests "adr/0023-etcd-three-requests.md";
        r0024_claims_of_dead_keepers "adr/0024-claims-of-dead-keepers.md";
        r0025_one_suite_for_every_service "adr/0025-one-suite-for-every-service.md";
        r0031_redis_queue "adr/0031-redis-queue.md";
        r0032_redis_tracking "adr/0032-redis-tracking.md";
        r0033_redis_connection "adr/0033-redis-connection.md";
        r0041_zookeeper_session_per_claim "adr/0041-zookeeper-session-per-claim.md";
        r0042_zookeeper_two_nodes_per_claim "adr/0042-zookeeper-two-nodes-per-claim.md";
        r0043_zookeeper_renewal_is_a_write "adr/0043-zookeeper-renewal-is-a-write.md";
        r0044_zookeeper_success_beside_the_queues "adr/0044-zookeeper-success-beside-the-queues.md";
        r0051_redlock "adr/0051-redlock.md";
        r0061_tokio_postgres "adr/0061-tokio-postgres.md";
        r0062_sql_one_batch_per_step "adr/0062-sql-one-batch-per-step.md";
        r0063_postgres_messages "adr/0063-postgres-messages.md";
        r0066_mysql_batches "adr/0066-mysql-batches.md";
        r0067_mysql_waiters_sleep "adr/0067-mysql-waiters-sleep.md";
        r0068_sql_who_leaves_hands_over "adr/0068-sql-who-leaves-hands-over.md";
        r0073_sql_renewals_lock_nothing_shared "adr/0073-sql-renewals-lock-nothing-shared.md";
        r0080_quick_build_and_packaged_program "adr/0080-quick-build-and-packaged-program.md";
        r0082_what_the_kernel_keeps_outlives_a_freeze "adr/0082-what-the-kernel-keeps-outlives-a-freeze.md";
        r0083_when_the_files_of_a_claim_fail "adr/0083-when-the-files-of-a-claim-fail.md";
        r0084_every_single_fault "adr/0084-every-single-fault.md";
        r0085_standard_error_has_a_writer "adr/0085-standard-error-has-a-writer.md";
        r0086_the_ender "adr/0086-the-ender.md";
        r0091_redis_keep_out "adr/0091-redis-keep-out.md";
        r0092_zookeeper_one_node_for_life "adr/0092-zookeeper-one-node-for-life.md";
        r0093_zookeeper_waiters_only_renew "adr/0093-zookeeper-waiters-only-renew.md";
        r0094_sql_messages_prove_nothing "adr/0094-sql-messages-prove-nothing.md";
        r0095_sql_late_requests "adr/0095-sql-late-requests.md";
        r0096_etcd_late_requests "adr/0096-etcd-late-requests.md";
        r0097_renewed_before_held "adr/0097-renewed-before-held.md";
        r0098_foreign_entries_have_claims "adr/0098-foreign-entries-have-claims.md";
        r0099_zookeeper_shortest_grant "adr/0099-zookeeper-shortest-grant.md";
        r0100_every_single_message "adr/0100-every-single-message.md";
        r0101_a_service_is_one_folder "adr/0101-a-service-is-one-folder.md";
        r0105_elections_are_runs "adr/0105-elections-are-runs.md";
        r0106_values_are_written_by_who_has_the_claim "adr/0106-values-are-written-by-who-has-the-claim.md";
        r0107_the_newcomer_asks "adr/0107-the-newcomer-asks.md";
        r0108_the_front_tells_the_service_manager "adr/0108-the-front-tells-the-service-manager.md";
        r0102_a_process_that_was_there_before "adr/0102-a-process-that-was-there-before.md";
        r0103_a_release_is_asked_through_the_service "adr/0103-a-release-is-asked-through-the-service.md";
        r0104_a_lease_without_a_process "adr/0104-a-lease-without-a-process.md";
        r0113_pages_are_markdown_and_shells_ask_the_program "adr/0113-pages-are-markdown-and-shells-ask-the-program.md";
        r0110_a_queue_is_one_document "adr/0110-a-queue-is-one-document.md";
        r0111_memcached_by_hand "adr/0111-memcached-by-hand.md";
        r0112_memcached_keys_and_foreign_clients "adr/0112-memcached-keys-and-foreign-clients.md";
        r0114_one_list_of_causes "adr/0114-one-list-of-causes.md";
        r0115_what_others_made_is_called_as_its_service_calls_it "adr/0115-what-others-made-is-called-as-its-service-calls-it.md";
        r0118_one_set_of_trials_for_every_way_to_hold "adr/0118-one-set-of-trials-for-every-way-to-hold.md";
        r0119_postgres_waiters_do_not_sleep_in_a_lock "adr/0119-postgres-waiters-do-not-sleep-in-a-lock.md";
        r0121_how_a_claim_stands_is_told_once "adr/0121-how-a-claim-stands-is-told-once.md";
        r0122_files_of_a_folder_form_no_circle "adr/0122-files-of-a-folder-form-no-circle.md";
        r0124_every_message_of_every_way_to_hold "adr/0124-every-message-of-every-way-to-hold.md";
        r0125_an_attempt_to_enter_is_undone_whatever_came_of_it "adr/0125-an-attempt-to-enter-is-undone-whatever-came-of-it.md";
        r0126_a_reason_has_parts "adr/0126-a-reason-has-parts.md";
        r0127_what_ends_a_claim_waits_for_no_answer "adr/0127-what-ends-a-claim-waits-for-no-answer.md";
        r0128_a_tree_is_stopped_before_it_is_told_to_end "adr/0128-a-tree-is-stopped-before-it-is-told-to-end.md";
        r0129_the_next_address_of_a_host_is_tried_beside_a_silent_one "adr/0129-the-next-address-of-a-host-is-tried-beside-a-silent-one.md";
        r0130_one_observer_for_queues_that_are_read "adr/0130-one-observer-for-queues-that-are-read.md";
        r0131_a_cycle_of_waits_is_found_from_name_to_name "adr/0131-a-cycle-of-waits-is-found-from-name-to-name.md";
        r0132_one_loop_for_requests "adr/0132-one-loop-for-requests.md";
        r0140_lock_files_among_sweepers "adr/0140-lock-files-among-sweepers.md";
        r0145_the_kernel_breaks_a_silent_connection "adr/0145-the-kernel-breaks-a-silent-connection.md";
        r0146_a_secret_is_read_when_it_is_needed "adr/0146-a-secret-is-read-when-it-is-needed.md";
        r0147_unanswered_connections_take_room "adr/0147-unanswered-connections-take-room.md";
        r0150_packages_are_made_by_one_command "adr/0150-packages-are-made-by-one-command.md";
        r0151_stored_forms_have_versions "adr/0151-stored-forms-have-versions.md";
        r0152_zookeeper_connections_in_turn "adr/0152-zookeeper-connections-in-turn.md";
    }
}
